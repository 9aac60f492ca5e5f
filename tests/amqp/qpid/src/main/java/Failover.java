import jakarta.jms.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Sends and receives so many messages over one connection, whatever becomes of the server it is to; tells what came. */
public class Failover {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        Connection connection = new JmsConnectionFactory(args[0]).createConnection();
        Map<Integer, String> got = new ConcurrentHashMap<>();
        List<String> wrong = new CopyOnWriteArrayList<>();
        Session receiving = connection.createSession(Session.CLIENT_ACKNOWLEDGE), sending = connection.createSession();
        receiving.createConsumer(receiving.createQueue("over")).setMessageListener(message -> {
            try {
                int number = message.getIntProperty("n");
                String before = got.putIfAbsent(number, message.getJMSMessageID());
                if (before != null && !message.getJMSRedelivered() && !before.equals(message.getJMSMessageID()))
                    wrong.add("message " + number + " came again as another one");
                message.acknowledge();
            } catch (JMSException lost) {
                // the server has gone: it comes again
            }
        });
        connection.start();
        MessageProducer producer = sending.createProducer(sending.createQueue("over"));
        for (int number = 0; number < count; number++) {
            Message message = sending.createMessage();
            message.setIntProperty("n", number);
            producer.send(message);
            System.out.println("sent " + number);
            System.out.flush();
        }
        for (int wait = 0; got.size() < count && wait < 600; wait++) Thread.sleep(100);
        System.out.println("got " + got.size() + " " + wrong);
        System.exit(0);
    }
}
