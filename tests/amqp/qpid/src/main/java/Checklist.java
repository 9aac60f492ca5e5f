import jakarta.jms.*;
import jakarta.jms.Queue;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * What Jakarta Messaging 3.1 asks for, row by row, against the server whose URL is the first argument; the others are
 * names of rows, without any all of them. Prints a line for each: its name, and "ok" or what was wrong.
 */
public class Checklist {
    interface Row { void run(Check c) throws Exception; }

    static final Map<String, Row> ROWS = new LinkedHashMap<>();
    static final long PATIENCE = 30_000, SHORT = 300;

    /** What a row has at hand; its destinations are its own. */
    static class Check implements AutoCloseable {
        final String url, name;
        final List<AutoCloseable> open = new ArrayList<>();
        final Connection connection;
        final Session session;

        Check(String url, String name) throws Exception {
            this.url = url;
            this.name = name;
            connection = connect("");
            session = connection.createSession();
            connection.start();
        }

        Connection connect(String options) throws Exception { return connect(options, null); }

        Connection connect(String options, String id) throws Exception {
            Connection made = new JmsConnectionFactory(url + options).createConnection();
            open.add(made);
            if (id != null) made.setClientID(id);
            made.start();
            return made;
        }

        Queue queue() throws Exception { return session.createQueue("q." + name); }
        Topic topic() throws Exception { return session.createTopic("t." + name); }

        void send(Destination to, String... texts) throws Exception {
            try (MessageProducer producer = session.createProducer(to)) {
                for (String text : texts) producer.send(session.createTextMessage(text));
            }
        }

        MessageConsumer consumer(Destination from) throws Exception { return session.createConsumer(from); }

        /** The message, sent and received. */
        Message back(Message message) throws Exception {
            try (MessageProducer producer = session.createProducer(queue()); MessageConsumer consumer = consumer(queue())) {
                producer.send(message);
                return got(consumer);
            }
        }

        public void close() throws Exception { for (AutoCloseable each : open) each.close(); }
    }

    static Message got(MessageConsumer consumer) throws Exception {
        Message found = consumer.receive(PATIENCE);
        if (found == null) throw new AssertionError("nothing came");
        return found;
    }

    static String text(MessageConsumer consumer) throws Exception { return ((TextMessage) got(consumer)).getText(); }

    static void none(MessageConsumer consumer) throws Exception {
        Message found = consumer.receive(SHORT);
        if (found != null) throw new AssertionError("it came: " + found);
    }

    static void same(Object is, Object expected) {
        if (!Objects.deepEquals(is, expected)) throw new AssertionError("is " + is + ", not " + expected);
    }

    static void that(boolean truth) { if (!truth) throw new AssertionError("is not so"); }

    interface Act { void run() throws Exception; }

    static void fails(Class<? extends Throwable> kind, Act act) throws Exception {
        try {
            act.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) return;
            throw new AssertionError("is " + error + ", no " + kind.getSimpleName(), error);
        }
        throw new AssertionError("there is no " + kind.getSimpleName());
    }

    static void row(String name, Row row) { ROWS.put(name, row); }

    static void messages() {
        row("text-message", c -> same(((TextMessage) c.back(c.session.createTextMessage("grün \u0000 \ud83c\udf55"))).getText(), "grün \u0000 \ud83c\udf55"));
        row("empty-text-message", c -> same(((TextMessage) c.back(c.session.createTextMessage())).getText(), null));
        row("plain-message", c -> { Message m = c.back(c.session.createMessage()); that(!(m instanceof TextMessage || m instanceof BytesMessage)); });
        row("bytes-message", c -> {
            BytesMessage m = c.session.createBytesMessage();
            m.writeInt(7); m.writeUTF("a"); m.writeBytes(new byte[] {0, -1}); m.writeDouble(1.5);
            BytesMessage found = (BytesMessage) c.back(m);
            same(found.readInt(), 7); same(found.readUTF(), "a"); same(found.readByte(), (byte) 0); same(found.readByte(), (byte) -1); same(found.readDouble(), 1.5);
        });
        row("map-message", c -> {
            MapMessage m = c.session.createMapMessage();
            m.setInt("i", 1); m.setLong("l", 2); m.setShort("s", (short) 3); m.setByte("b", (byte) 4); m.setFloat("f", 1.5f);
            m.setDouble("d", 2.5); m.setBoolean("t", true); m.setString("x", "y"); m.setBytes("z", new byte[] {1, 2}); m.setChar("c", 'c');
            MapMessage found = (MapMessage) c.back(m);
            same(found.getObject("i"), 1); same(found.getObject("l"), 2L); same(found.getObject("s"), (short) 3); same(found.getObject("b"), (byte) 4);
            same(found.getObject("f"), 1.5f); same(found.getObject("d"), 2.5); same(found.getObject("t"), true); same(found.getString("x"), "y");
            same(found.getBytes("z"), new byte[] {1, 2}); same(found.getChar("c"), 'c');
        });
        row("stream-message", c -> {
            StreamMessage m = c.session.createStreamMessage();
            m.writeInt(1); m.writeString("a"); m.writeBoolean(false); m.writeBytes(new byte[] {3});
            StreamMessage found = (StreamMessage) c.back(m);
            same(found.readInt(), 1); same(found.readString(), "a"); same(found.readBoolean(), false);
            byte[] bytes = new byte[1]; same(found.readBytes(bytes), 1); same(bytes[0], (byte) 3);
        });
        row("object-message", c -> {
            ObjectMessage found = (ObjectMessage) c.back(c.session.createObjectMessage(new ArrayList<>(List.of("a", 5))));
            same(found.getObject(), List.of("a", 5));
        });
        row("large-message", c -> {
            BytesMessage m = c.session.createBytesMessage();
            byte[] data = new byte[3_000_000]; new Random(1).nextBytes(data); m.writeBytes(data);
            BytesMessage found = (BytesMessage) c.back(m);
            byte[] read = new byte[data.length]; found.readBytes(read); same(read, data); same(found.getBodyLength(), (long) data.length);
        });
        row("too-large-message", c -> {
            BytesMessage m = c.session.createBytesMessage(); m.writeBytes(new byte[9_000_000]);
            try (MessageProducer producer = c.session.createProducer(c.queue())) {
                fails(JMSException.class, () -> producer.send(m));
                producer.send(c.session.createTextMessage("next"));
            }
            same(text(c.consumer(c.queue())), "next");
        });
        row("get-body", c -> { Message m = c.back(c.session.createTextMessage("a")); that(m.isBodyAssignableTo(String.class)); same(m.getBody(String.class), "a"); });
        row("received-is-read-only", c -> { TextMessage m = (TextMessage) c.back(c.session.createTextMessage("a")); fails(MessageNotWriteableException.class, () -> m.setText("b")); fails(MessageNotWriteableException.class, () -> m.setStringProperty("a", "b")); });
        row("properties-keep-their-types", c -> {
            Message m = c.session.createMessage();
            m.setIntProperty("i", 1); m.setLongProperty("l", 1L << 40); m.setShortProperty("s", (short) 3); m.setByteProperty("b", (byte) 4);
            m.setFloatProperty("f", 1.5f); m.setDoubleProperty("d", 2.5); m.setBooleanProperty("t", true); m.setStringProperty("x", "y");
            Message found = c.back(m);
            same(found.getObjectProperty("i"), 1); same(found.getObjectProperty("l"), 1L << 40); same(found.getObjectProperty("s"), (short) 3);
            same(found.getObjectProperty("b"), (byte) 4); same(found.getObjectProperty("f"), 1.5f); same(found.getObjectProperty("d"), 2.5);
            same(found.getObjectProperty("t"), true); same(found.getStringProperty("x"), "y"); that(!found.propertyExists("none"));
        });
        row("property-names", c -> {
            Message m = c.session.createMessage(); m.setIntProperty("a", 1); m.setIntProperty("b", 2);
            Set<Object> names = new HashSet<>(Collections.list(c.back(m).getPropertyNames())); that(names.containsAll(Set.of("a", "b")));
        });
        row("message-id", c -> { Message m = c.session.createTextMessage("a"); Message found = c.back(m); that(m.getJMSMessageID().startsWith("ID:")); same(found.getJMSMessageID(), m.getJMSMessageID()); });
        row("message-id-disabled", c -> { MessageProducer p = c.session.createProducer(c.queue()); p.setDisableMessageID(true); p.send(c.session.createMessage()); same(got(c.consumer(c.queue())).getJMSMessageID(), null); });
        row("timestamp", c -> { long before = System.currentTimeMillis(); Message found = c.back(c.session.createMessage()); that(found.getJMSTimestamp() >= before && found.getJMSTimestamp() <= System.currentTimeMillis()); });
        row("correlation-id", c -> { Message m = c.session.createMessage(); m.setJMSCorrelationID("order-7"); same(c.back(m).getJMSCorrelationID(), "order-7"); });
        row("correlation-id-of-a-message", c -> { Message m = c.session.createMessage(); m.setJMSCorrelationID("ID:AMQP_UUID:2b2cbb3c-5b0a-4b0c-9b1a-0a0a0a0a0a0a"); same(c.back(m).getJMSCorrelationID(), m.getJMSCorrelationID()); });
        row("correlation-id-as-bytes", c -> { Message m = c.session.createMessage(); m.setJMSCorrelationIDAsBytes(new byte[] {1, 2}); same(c.back(m).getJMSCorrelationIDAsBytes(), new byte[] {1, 2}); });
        row("type", c -> { Message m = c.session.createMessage(); m.setJMSType("order"); same(c.back(m).getJMSType(), "order"); });
        row("destination-queue", c -> same(((Queue) c.back(c.session.createMessage()).getJMSDestination()).getQueueName(), c.queue().getQueueName()));
        row("destination-topic", c -> { MessageConsumer s = c.consumer(c.topic()); c.send(c.topic(), "a"); same(((Topic) got(s).getJMSDestination()).getTopicName(), c.topic().getTopicName()); });
        row("reply-to-queue", c -> { Message m = c.session.createMessage(); m.setJMSReplyTo(c.session.createQueue("answers")); same(((Queue) c.back(m).getJMSReplyTo()).getQueueName(), "answers"); });
        row("reply-to-topic", c -> { Message m = c.session.createMessage(); m.setJMSReplyTo(c.topic()); that(c.back(m).getJMSReplyTo() instanceof Topic t && t.getTopicName().equals(c.topic().getTopicName())); });
        row("delivery-mode", c -> {
            MessageProducer p = c.session.createProducer(c.queue()); MessageConsumer s = c.consumer(c.queue());
            p.send(c.session.createMessage()); same(got(s).getJMSDeliveryMode(), DeliveryMode.PERSISTENT);
            p.setDeliveryMode(DeliveryMode.NON_PERSISTENT); p.send(c.session.createMessage()); same(got(s).getJMSDeliveryMode(), DeliveryMode.NON_PERSISTENT);
        });
        row("priority", c -> {
            MessageProducer p = c.session.createProducer(c.queue());
            for (int each : new int[] {1, 9, 4}) { p.setPriority(each); p.send(c.session.createTextMessage("" + each)); }
            MessageConsumer s = c.consumer(c.queue()); same(text(s), "9"); same(text(s), "4"); Message last = got(s); same(last.getJMSPriority(), 1);
        });
        row("time-to-live", c -> {
            MessageProducer p = c.session.createProducer(c.queue()); p.setTimeToLive(100); p.send(c.session.createTextMessage("old")); Thread.sleep(400);
            p.setTimeToLive(60_000); p.send(c.session.createTextMessage("new")); Message m = got(c.consumer(c.queue()));
            same(((TextMessage) m).getText(), "new"); that(Math.abs(m.getJMSExpiration() - System.currentTimeMillis() - 60_000) < 30_000);
        });
        row("delivery-delay", c -> {
            MessageProducer p = c.session.createProducer(c.queue()); MessageConsumer s = c.consumer(c.queue()); p.setDeliveryDelay(1_500);
            long sent = System.currentTimeMillis(); p.send(c.session.createMessage()); Message m = got(s);
            that(System.currentTimeMillis() - sent >= 1_400); that(m.getJMSDeliveryTime() >= sent + 1_400);
        });
        row("group", c -> { Message m = c.session.createMessage(); m.setStringProperty("JMSXGroupID", "g"); m.setIntProperty("JMSXGroupSeq", 3); Message found = c.back(m); same(found.getStringProperty("JMSXGroupID"), "g"); same(found.getIntProperty("JMSXGroupSeq"), 3); });
        row("groups-have-one-consumer", c -> {
            MessageConsumer a = c.consumer(c.queue()), b = c.consumer(c.queue()); MessageProducer p = c.session.createProducer(c.queue());
            for (int at = 0; at < 6; at++) { Message m = c.session.createMessage(); m.setStringProperty("JMSXGroupID", "g"); p.send(m); }
            int mine = 0, others = 0; while (mine + others < 6) { if (a.receive(SHORT) != null) mine++; else if (b.receive(SHORT) != null) others++; }
            that(mine == 0 || others == 0);
        });
        row("foreign-message", c -> { Message m = c.back(c.session.createTextMessage("again")); Queue other = c.session.createQueue("q." + c.name + ".other"); c.session.createProducer(other).send(m); same(text(c.consumer(other)), "again"); });
    }

    static void receiving() {
        row("receive-no-wait", c -> { MessageConsumer s = c.consumer(c.queue()); same(s.receiveNoWait(), null); c.send(c.queue(), "a"); Message m = null; for (int at = 0; m == null && at < 100; at++) { m = s.receiveNoWait(); Thread.sleep(20); } that(m != null); });
        row("receive-with-timeout", c -> { long start = System.currentTimeMillis(); same(c.consumer(c.queue()).receive(200), null); that(System.currentTimeMillis() - start >= 190); });
        row("receive-without-prefetch", c -> {
            Session s = c.connect("?jms.prefetchPolicy.all=0").createSession(); MessageConsumer a = s.createConsumer(c.queue()); same(a.receive(SHORT), null); c.send(c.queue(), "1", "2"); same(text(a), "1"); same(text(a), "2"); same(a.receiveNoWait(), null);
        });
        row("listener", c -> { BlockingQueue<Message> got = new LinkedBlockingQueue<>(); c.consumer(c.queue()).setMessageListener(got::add); c.send(c.queue(), "1", "2"); for (String each : new String[] {"1", "2"}) same(((TextMessage) got.poll(30, TimeUnit.SECONDS)).getText(), each); });
        row("listener-that-throws-gets-it-again", c -> {
            AtomicInteger count = new AtomicInteger(); CountDownLatch done = new CountDownLatch(1);
            c.consumer(c.queue()).setMessageListener(m -> { if (count.incrementAndGet() == 1) throw new RuntimeException("once"); done.countDown(); });
            c.send(c.queue(), "1"); that(done.await(30, TimeUnit.SECONDS));
        });
        row("order-of-one-producer", c -> { MessageConsumer s = c.consumer(c.queue()); String[] texts = new String[500]; for (int at = 0; at < 500; at++) texts[at] = "" + at; c.send(c.queue(), texts); for (String each : texts) same(text(s), each); });
        row("two-consumers-share-a-queue", c -> {
            MessageConsumer a = c.connect("?jms.prefetchPolicy.all=1").createSession().createConsumer(c.queue()), b = c.connect("?jms.prefetchPolicy.all=1").createSession().createConsumer(c.queue());
            c.send(c.queue(), "1", "2", "3", "4"); Set<String> mine = new HashSet<>(), others = new HashSet<>();
            for (long end = System.nanoTime() + PATIENCE * 1_000_000L; mine.size() + others.size() < 4 && System.nanoTime() < end; ) {
                if (a.receive(SHORT) instanceof TextMessage m) mine.add(m.getText());
                if (b.receive(SHORT) instanceof TextMessage m) others.add(m.getText());
            }
            that(!mine.isEmpty() && !others.isEmpty()); mine.addAll(others); same(mine.size(), 4);
        });
        row("stop-and-start", c -> { MessageConsumer s = c.consumer(c.queue()); c.connection.stop(); c.send(c.queue(), "1"); none(s); c.connection.start(); same(text(s), "1"); });
        row("client-acknowledge", c -> {
            Session s = c.connect("").createSession(Session.CLIENT_ACKNOWLEDGE); MessageConsumer a = s.createConsumer(c.queue()); c.send(c.queue(), "1", "2", "3");
            got(a); got(a).acknowledge(); same(text(a), "3"); s.close(); Message m = got(c.consumer(c.queue())); same(((TextMessage) m).getText(), "3");
        });
        row("recover", c -> {
            Session s = c.connect("").createSession(Session.CLIENT_ACKNOWLEDGE); MessageConsumer a = s.createConsumer(c.queue()); c.send(c.queue(), "1"); that(!got(a).getJMSRedelivered());
            s.recover(); Message again = got(a); that(again.getJMSRedelivered()); same(again.getIntProperty("JMSXDeliveryCount"), 2); again.acknowledge();
        });
        row("dups-ok-acknowledge", c -> { Session s = c.connect("").createSession(Session.DUPS_OK_ACKNOWLEDGE); c.send(c.queue(), "1"); same(text(s.createConsumer(c.queue())), "1"); });
        row("individual-acknowledge", c -> {
            Session s = c.connect("").createSession(101); MessageConsumer a = s.createConsumer(c.queue()); c.send(c.queue(), "1", "2"); Message one = got(a), two = got(a); two.acknowledge(); s.close();
            same(text(c.consumer(c.queue())), "1"); none(c.consumer(c.queue()));
        });
        row("redelivered-after-a-lost-connection", c -> {
            Connection lost = c.connect(""); MessageConsumer a = lost.createSession(Session.CLIENT_ACKNOWLEDGE).createConsumer(c.queue()); c.send(c.queue(), "1"); got(a); lost.close();
            Message m = got(c.consumer(c.queue())); that(m.getJMSRedelivered());
        });
        row("delivery-count", c -> same(c.back(c.session.createMessage()).getIntProperty("JMSXDeliveryCount"), 1));
        row("close-a-consumer-gives-back", c -> { Session s = c.connect("").createSession(); MessageConsumer a = s.createConsumer(c.queue()); c.send(c.queue(), "1", "2"); same(text(a), "1"); a.close(); same(text(c.consumer(c.queue())), "2"); });
        row("close-is-idempotent", c -> { MessageConsumer s = c.consumer(c.queue()); s.close(); s.close(); fails(jakarta.jms.IllegalStateException.class, () -> s.receive(1)); });
        row("one-idle-consumer-holds-up-no-other", c -> {
            Session s = c.connect("?jms.prefetchPolicy.all=0").createSession(); Topic one = c.session.createTopic(c.name + ".1"), two = c.session.createTopic(c.name + ".2");
            MessageConsumer idle = s.createConsumer(one), busy = s.createConsumer(two); c.send(one, "a"); c.send(two, "b"); same(text(busy), "b"); same(text(idle), "a");
        });
        row("async-send", c -> {
            CountDownLatch done = new CountDownLatch(20); MessageProducer p = c.session.createProducer(c.queue());
            CompletionListener listener = new CompletionListener() { public void onCompletion(Message m) { done.countDown(); } public void onException(Message m, Exception e) { e.printStackTrace(); } };
            for (int at = 0; at < 20; at++) p.send(c.session.createTextMessage("" + at), listener); that(done.await(30, TimeUnit.SECONDS)); same(text(c.consumer(c.queue())), "0");
        });
        row("anonymous-producer", c -> { MessageProducer p = c.session.createProducer(null); p.send(c.queue(), c.session.createTextMessage("q")); same(text(c.consumer(c.queue())), "q"); MessageConsumer s = c.consumer(c.topic()); p.send(c.topic(), c.session.createTextMessage("t")); same(text(s), "t"); });
        row("a-producer-without-a-destination-needs-one", c -> { MessageProducer p = c.session.createProducer(null); fails(UnsupportedOperationException.class, () -> p.send(c.session.createMessage())); });
    }

    static void browsing() {
        row("browser", c -> {
            c.send(c.queue(), "1", "2"); List<String> seen = new ArrayList<>();
            for (Object each : Collections.list(c.session.createBrowser(c.queue()).getEnumeration())) seen.add(((TextMessage) each).getText());
            same(seen, List.of("1", "2")); MessageConsumer s = c.consumer(c.queue()); same(text(s), "1"); same(text(s), "2");
        });
        row("browser-of-nothing", c -> that(!c.session.createBrowser(c.queue()).getEnumeration().hasMoreElements()));
        row("browser-with-a-selector", c -> {
            MessageProducer p = c.session.createProducer(c.queue()); for (int at = 0; at < 3; at++) { Message m = c.session.createMessage(); m.setIntProperty("n", at); p.send(m); }
            same(Collections.list(c.session.createBrowser(c.queue(), "n > 0").getEnumeration()).size(), 2);
        });
    }

    static void selecting(String selector, int... expected) {
        row("selector " + selector, c -> {
            MessageProducer p = c.session.createProducer(c.queue());
            for (int at = 0; at < 4; at++) {
                Message m = c.session.createTextMessage("" + at); m.setIntProperty("n", at); m.setStringProperty("color", at % 2 == 0 ? "red" : "blue"); m.setBooleanProperty("even", at % 2 == 0);
                m.setDoubleProperty("rate", at / 2.0); m.setJMSType("t" + at); m.setJMSCorrelationID("c" + at); p.setPriority(at); p.send(m);
            }
            MessageConsumer s = c.session.createConsumer(c.queue(), selector); Set<String> found = new HashSet<>(), wanted = new HashSet<>();
            for (int each : expected) { wanted.add("" + each); found.add(text(s)); } same(found, wanted); none(s);
        });
    }

    static void selectors() {
        selecting("n = 2", 2); selecting("color = 'red' AND n > 0", 2); selecting("even OR n = 3", 0, 2, 3); selecting("NOT even", 1, 3); selecting("n BETWEEN 1 AND 2", 1, 2);
        selecting("color IN ('blue', 'green')", 1, 3); selecting("color LIKE 'r%'", 0, 2); selecting("missing IS NULL AND n = 1", 1); selecting("rate * 2 = 3", 3); selecting("JMSType = 't1'", 1);
        selecting("JMSCorrelationID = 'c2'", 2); selecting("JMSPriority >= 2", 2, 3); selecting("JMSDeliveryMode = 'PERSISTENT' AND n = 0", 0);
        row("selector-by-message-id", c -> { Message m = c.session.createTextMessage("mine"); c.send(c.queue(), "other"); c.session.createProducer(c.queue()).send(m); same(text(c.session.createConsumer(c.queue(), "JMSMessageID = '" + m.getJMSMessageID() + "'")), "mine"); });
        row("selector-that-is-none", c -> fails(InvalidSelectorException.class, () -> c.session.createConsumer(c.queue(), "n = = 1")));
    }

    static void topics() {
        row("topic", c -> { MessageConsumer a = c.consumer(c.topic()), b = c.consumer(c.topic()); c.send(c.topic(), "1"); same(text(a), "1"); same(text(b), "1"); });
        row("topic-before-the-subscription", c -> { c.send(c.topic(), "early"); MessageConsumer s = c.consumer(c.topic()); c.send(c.topic(), "1"); same(text(s), "1"); });
        row("topic-with-a-selector", c -> { MessageConsumer s = c.session.createConsumer(c.topic(), "n = 1"); MessageProducer p = c.session.createProducer(c.topic()); for (int at = 0; at < 2; at++) { Message m = c.session.createTextMessage("" + at); m.setIntProperty("n", at); p.send(m); } same(text(s), "1"); });
        row("no-local", c -> {
            Connection own = c.connect("", "id-" + c.name); Session s = own.createSession(); MessageConsumer a = s.createConsumer(c.topic(), null, true); s.createProducer(c.topic()).send(s.createTextMessage("mine")); c.send(c.topic(), "yours"); same(text(a), "yours");
        });
        row("wildcards", c -> { MessageConsumer s = c.session.createConsumer(c.session.createTopic(c.name + ".*")); c.send(c.session.createTopic(c.name + ".x"), "1"); same(text(s), "1"); });
        row("durable-subscriber", c -> {
            Connection own = c.connect("", "id-" + c.name); Session s = own.createSession(); s.createDurableSubscriber(c.topic(), "d").close(); c.send(c.topic(), "1"); own.close();
            s = c.connect("", "id-" + c.name).createSession(); MessageConsumer again = s.createDurableConsumer(c.topic(), "d"); same(text(again), "1"); again.close(); s.unsubscribe("d");
        });
        row("durable-needs-a-client-id", c -> fails(jakarta.jms.IllegalStateException.class, () -> c.session.createDurableConsumer(c.topic(), "d")));
        row("durable-subscription-that-is-in-use", c -> { Session s = c.connect("", "id-" + c.name).createSession(); MessageConsumer a = s.createDurableConsumer(c.topic(), "d"); fails(JMSException.class, () -> s.createDurableConsumer(c.topic(), "d")); a.close(); s.unsubscribe("d"); });
        row("durable-with-another-selector-begins-anew", c -> {
            Session s = c.connect("", "id-" + c.name).createSession(); s.createDurableConsumer(c.topic(), "d", "n = 1", false).close(); MessageConsumer again = s.createDurableConsumer(c.topic(), "d", "n = 2", false);
            Message m = c.session.createTextMessage("2"); m.setIntProperty("n", 2); c.session.createProducer(c.topic()).send(m); same(text(again), "2"); again.close(); s.unsubscribe("d");
        });
        row("unsubscribe-ends-it", c -> { Session s = c.connect("", "id-" + c.name).createSession(); s.createDurableConsumer(c.topic(), "d").close(); c.send(c.topic(), "1"); s.unsubscribe("d"); MessageConsumer again = s.createDurableConsumer(c.topic(), "d"); none(again); again.close(); s.unsubscribe("d"); });
        row("unsubscribe-what-is-not", c -> fails(InvalidDestinationException.class, () -> c.connect("", "id-" + c.name).createSession().unsubscribe("nothing")));
        row("unsubscribe-while-it-is-in-use", c -> { Session s = c.connect("", "id-" + c.name).createSession(); MessageConsumer a = s.createDurableConsumer(c.topic(), "d"); fails(JMSException.class, () -> s.unsubscribe("d")); a.close(); s.unsubscribe("d"); });
        row("shared-consumer", c -> {
            Session one = c.connect("").createSession(), two = c.connect("").createSession(); MessageConsumer a = one.createSharedConsumer(c.topic(), "s." + c.name), b = two.createSharedConsumer(c.topic(), "s." + c.name);
            c.send(c.topic(), "1", "2", "3", "4"); int count = 0; while (count < 4) { Message m = a.receive(SHORT); if (m == null) m = b.receive(SHORT); if (m != null) count++; } none(a); none(b);
        });
        row("shared-durable-consumer", c -> {
            Session one = c.connect("", "id-" + c.name).createSession(); MessageConsumer a = one.createSharedDurableConsumer(c.topic(), "sd"), b = one.createSharedDurableConsumer(c.topic(), "sd"); a.close(); b.close();
            c.send(c.topic(), "1"); MessageConsumer again = one.createSharedDurableConsumer(c.topic(), "sd"); same(text(again), "1"); again.close(); one.unsubscribe("sd");
        });
        row("shared-durable-without-a-client-id", c -> { MessageConsumer a = c.session.createSharedDurableConsumer(c.topic(), "g." + c.name); a.close(); c.send(c.topic(), "1"); MessageConsumer again = c.connect("").createSession().createSharedDurableConsumer(c.topic(), "g." + c.name); same(text(again), "1"); again.close(); c.session.unsubscribe("g." + c.name); });
    }

    static void temporary() {
        row("temporary-queue", c -> { TemporaryQueue q = c.session.createTemporaryQueue(); MessageConsumer s = c.consumer(q); c.send(q, "1"); same(text(s), "1"); });
        row("temporary-queue-keeps-what-comes-before-its-consumer", c -> { TemporaryQueue q = c.session.createTemporaryQueue(); c.send(q, "1"); same(text(c.consumer(q)), "1"); });
        row("temporary-topic", c -> { TemporaryTopic t = c.session.createTemporaryTopic(); MessageConsumer s = c.consumer(t); c.send(t, "1"); same(text(s), "1"); });
        row("temporary-of-another-connection", c -> { TemporaryQueue q = c.session.createTemporaryQueue(); fails(JMSException.class, () -> c.connect("").createSession().createConsumer(q)); });
        row("temporary-queue-deleted", c -> { TemporaryQueue q = c.session.createTemporaryQueue(); MessageConsumer s = c.consumer(q); s.close(); q.delete(); fails(JMSException.class, () -> c.consumer(q)); });
        row("request-and-reply", c -> {
            Session other = c.connect("").createSession(); MessageConsumer work = other.createConsumer(c.queue());
            work.setMessageListener(m -> { try { TextMessage answer = other.createTextMessage("answer"); answer.setJMSCorrelationID(m.getJMSMessageID()); other.createProducer(null).send(m.getJMSReplyTo(), answer); } catch (JMSException error) { throw new RuntimeException(error); } });
            TemporaryQueue q = c.session.createTemporaryQueue(); Message ask = c.session.createTextMessage("question"); ask.setJMSReplyTo(q); c.session.createProducer(c.queue()).send(ask); Message m = got(c.consumer(q)); same(((TextMessage) m).getText(), "answer"); same(m.getJMSCorrelationID(), ask.getJMSMessageID());
        });
        row("queue-requestor", c -> {
            QueueConnection own = (QueueConnection) c.connect(""); QueueSession s = own.createQueueSession(false, Session.AUTO_ACKNOWLEDGE); Session other = c.connect("").createSession();
            other.createConsumer(c.queue()).setMessageListener(m -> { try { other.createProducer(null).send(m.getJMSReplyTo(), other.createTextMessage("yes")); } catch (JMSException error) { throw new RuntimeException(error); } });
            same(((TextMessage) new QueueRequestor(s, c.queue()).request(s.createTextMessage("?"))).getText(), "yes");
        });
    }

    static void transactions() {
        row("commit", c -> { Session s = c.connect("").createSession(Session.SESSION_TRANSACTED); MessageProducer p = s.createProducer(c.queue()); p.send(s.createTextMessage("1")); MessageConsumer a = c.consumer(c.queue()); none(a); s.commit(); same(text(a), "1"); });
        row("rollback-of-what-was-sent", c -> { Session s = c.connect("").createSession(Session.SESSION_TRANSACTED); MessageProducer p = s.createProducer(c.queue()); p.send(s.createTextMessage("never")); s.rollback(); p.send(s.createTextMessage("1")); s.commit(); same(text(c.consumer(c.queue())), "1"); });
        row("rollback-of-what-was-received", c -> {
            c.send(c.queue(), "1"); Session s = c.connect("").createSession(Session.SESSION_TRANSACTED); MessageConsumer a = s.createConsumer(c.queue()); that(!got(a).getJMSRedelivered()); s.rollback();
            Message again = got(a); that(again.getJMSRedelivered()); same(again.getIntProperty("JMSXDeliveryCount"), 2); s.commit(); a.close(); none(c.consumer(c.queue()));
        });
        row("receive-and-send-in-one", c -> {
            Queue out = c.session.createQueue("q." + c.name + ".out"); c.send(c.queue(), "1", "2"); Session s = c.connect("").createSession(Session.SESSION_TRANSACTED); MessageConsumer a = s.createConsumer(c.queue()); MessageProducer p = s.createProducer(out);
            for (int at = 0; at < 2; at++) p.send(s.createTextMessage(text(a) + "!")); s.commit(); MessageConsumer b = c.consumer(out); same(text(b), "1!"); same(text(b), "2!"); s.close(); none(c.consumer(c.queue()));
        });
        row("an-open-transaction-is-rolled-back-at-the-end", c -> { c.send(c.queue(), "1"); Connection own = c.connect(""); Session s = own.createSession(Session.SESSION_TRANSACTED); got(s.createConsumer(c.queue())); s.createProducer(c.queue()).send(s.createTextMessage("never")); own.close(); MessageConsumer a = c.consumer(c.queue()); same(text(a), "1"); none(a); });
        row("many-in-one-transaction", c -> { Session s = c.connect("").createSession(Session.SESSION_TRANSACTED); MessageProducer p = s.createProducer(c.queue()); for (int at = 0; at < 500; at++) p.send(s.createTextMessage("" + at)); s.commit(); MessageConsumer a = s.createConsumer(c.queue()); for (int at = 0; at < 500; at++) same(text(a), "" + at); s.commit(); });
        row("commit-without-a-transaction", c -> fails(jakarta.jms.IllegalStateException.class, () -> c.session.commit()));
    }

    static void connections() {
        row("client-id-in-use", c -> { c.connect("", "id-" + c.name); fails(InvalidClientIDException.class, () -> c.connect("", "id-" + c.name)); });
        row("metadata", c -> { ConnectionMetaData data = c.connection.getMetaData(); same(data.getJMSMajorVersion(), 3); that(Collections.list(data.getJMSXPropertyNames()).contains("JMSXGroupID")); });
        row("several-sessions", c -> { Session a = c.connection.createSession(), b = c.connection.createSession(); MessageConsumer s = b.createConsumer(c.queue()); a.createProducer(c.queue()).send(a.createTextMessage("1")); a.close(); same(text(s), "1"); });
        row("jms-context", c -> { try (JMSContext context = new JmsConnectionFactory(c.url).createContext()) { context.createProducer().setProperty("n", 5).setPriority(7).send(context.createQueue("q." + c.name), "1"); Message m = context.createConsumer(context.createQueue("q." + c.name)).receive(PATIENCE); same(m.getBody(String.class), "1"); same(m.getIntProperty("n"), 5); same(m.getJMSPriority(), 7); } });
        row("idle-connection-stays", c -> { Connection own = c.connect("?amqp.idleTimeout=4000"); Session s = own.createSession(); Thread.sleep(5_000); s.createProducer(c.queue()).send(s.createTextMessage("1")); same(text(s.createConsumer(c.queue())), "1"); });
        row("destination-that-is-none", c -> fails(JMSException.class, () -> c.session.createConsumer(c.session.createQueue("a,b"))));
        row("a-session-without-end-of-work", c -> { for (int at = 0; at < 200; at++) { Session s = c.connection.createSession(); s.createProducer(c.queue()).send(s.createMessage()); s.close(); } same(Collections.list(c.session.createBrowser(c.queue()).getEnumeration()).size(), 200); });
    }

    public static void main(String[] args) throws Exception {
        messages(); receiving(); browsing(); selectors(); topics(); temporary(); transactions(); connections();
        if (args.length == 0) { ROWS.keySet().forEach(System.out::println); return; }
        Set<String> wanted = new HashSet<>(Arrays.asList(args).subList(1, args.length));
        int number = 0;
        for (Map.Entry<String, Row> each : ROWS.entrySet()) {
            number++;
            if (!wanted.isEmpty() && !wanted.contains(each.getKey())) continue;
            String said = "ok";
            try (Check check = new Check(args[0], "row" + number)) {
                each.getValue().run(check);
            } catch (Throwable error) {
                said = error.toString().replace('\n', ' ') + " at " + Arrays.stream(error.getStackTrace()).filter(at -> at.getClassName().startsWith("Checklist")).findFirst().orElse(null);
            }
            System.out.println(each.getKey() + ": " + said);
            System.out.flush();
        }
        System.exit(0);
    }
}
