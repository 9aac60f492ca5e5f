// What test_rhea.py runs: rhea against the AMQP port that is its argument. Prints one line a step.
import assert from "node:assert/strict";
import rhea from "rhea";

const port = Number(process.argv[2]);
const steps = process.argv.slice(3);

function connect(options = {}) {
  const container = rhea.create_container();
  const connection = container.connect({ host: "127.0.0.1", port, reconnect: false, ...options });
  return new Promise((resolve, reject) => {
    connection.once("connection_open", () => resolve(connection));
    connection.once("connection_error", (context) => reject(context.connection.error));
    connection.once("disconnected", (context) => reject(context.error ?? new Error("disconnected")));
    connection.on("error", () => {});
  });
}

function sender(connection, target) {
  const made = connection.open_sender(target);
  return new Promise((resolve, reject) => {
    made.once("sendable", () => resolve(made));
    made.once("sender_error", () => reject(new Error(made.error.description)));
  });
}

function receiver(connection, options) {
  const made = connection.open_receiver({ autoaccept: false, ...options });
  return new Promise((resolve, reject) => {
    made.once("receiver_open", () => resolve(made));
    made.once("receiver_error", () => reject(new Error(made.error.description)));
  });
}

const next = (made) => new Promise((resolve) => made.once("message", resolve));

// The outcome of one message.
function send(made, message) {
  return new Promise((resolve) => {
    const delivery = made.send(message);
    for (const outcome of ["accepted", "rejected", "released", "modified"]) {
      made.on(outcome, (context) => { if (context.delivery === delivery) resolve(outcome); });
    }
  });
}

const all = {
  async send() {
    const connection = await connect();
    const out = await sender(connection, "js-send");
    assert.equal(await send(out, { body: "grün", durable: true, application_properties: { color: "red:blue", n: 5 } }), "accepted");
    const box = await receiver(connection, { source: "js-send" });
    const { message, delivery } = await next(box);
    assert.deepEqual([message.body, message.application_properties, message.durable], ["grün", { color: "red:blue", n: 5 }, true]);
    delivery.accept();
    connection.close();
  },
  async topic() {
    const connection = await connect();
    const source = { address: "js-news", capabilities: ["topic"], filter: rhea.filter.selector("color = 'red'") };
    const box = await receiver(connection, { source });
    const out = await sender(connection, { target: { address: "js-news", capabilities: ["topic"] } });
    const came = next(box);
    for (const color of ["blue", "red"]) await send(out, { body: color, application_properties: { color } });
    assert.equal((await came).message.body, "red");
    connection.close();
  },
  async outcomes() {
    const connection = await connect();
    const out = await sender(connection, "js-outcomes");
    await send(out, { body: "1", durable: true });
    const box = await receiver(connection, { source: "js-outcomes", credit_window: 1 });
    (await next(box)).delivery.release({ delivery_failed: false });
    const again = await next(box);
    assert.equal(again.message.delivery_count ?? 0, 0);
    again.delivery.modified({ delivery_failed: true, undeliverable_here: false });
    const failed = await next(box);
    assert.equal(failed.message.delivery_count, 1);
    failed.delivery.reject({ condition: "amqp:internal-error" });
    const dead = await receiver(connection, { source: "DLQ.js-outcomes" });
    assert.equal((await next(dead)).message.body, "1");
    connection.close();
  },
  async reply() {
    const server = await connect();
    const work = await receiver(server, { source: "js-work" });
    const relay = await sender(server, { target: {} });
    work.on("message", ({ message, delivery }) => {
      relay.send({ to: message.reply_to, correlation_id: message.message_id, body: message.body.toUpperCase() });
      delivery.accept();
    });
    const client = await connect();
    const answers = await receiver(client, { source: { dynamic: true } });
    const out = await sender(client, "js-work");
    const came = next(answers);
    out.send({ reply_to: answers.source.address, message_id: "7", body: "hello" });
    const { message } = await came;
    assert.deepEqual([message.body, message.correlation_id], ["HELLO", "7"]);
    client.close();
    server.close();
  },
  async drain() {
    const connection = await connect();
    const out = await sender(connection, "js-drain");
    await send(out, { body: "1", durable: true });
    const box = await receiver(connection, { source: "js-drain", credit_window: 0 });
    let count = 0;
    box.on("message", ({ delivery }) => { count++; delivery.accept(); });
    const drained = new Promise((resolve) => box.once("receiver_drained", resolve));
    box.add_credit(10);
    box.drain_credit();
    await drained;
    assert.deepEqual([count, box.credit], [1, 0]);
    connection.close();
  },
  async large() {
    const connection = await connect({ max_frame_size: 16384 });
    const out = await sender(connection, "js-large");
    const body = "0123456789abcdef".repeat(1 << 17);
    assert.equal(await send(out, { body, durable: true }), "accepted");
    const box = await receiver(connection, { source: "js-large" });
    assert.equal((await next(box)).message.body, body);
    connection.close();
  },
  async durable() {
    const source = { address: "js-durable", capabilities: ["topic"], durable: 2, expiry_policy: "never" };
    const first = await connect({ container_id: "js-me" });
    (await receiver(first, { name: "mine", source })).detach();
    const out = await sender(first, { target: { address: "js-durable", capabilities: ["topic"] } });
    assert.equal(await send(out, { body: "kept", durable: true }), "accepted");
    first.close();
    const second = await connect({ container_id: "js-me" });
    const box = await receiver(second, { name: "mine", source });
    const { message, delivery } = await next(box);
    assert.equal(message.body, "kept");
    delivery.accept();
    box.close();
    second.close();
  },
  async many() {
    const connection = await connect(), count = 10_000;
    const out = connection.open_sender("js-many");
    let sent = 0, accepted = 0;
    const done = new Promise((resolve) => out.on("accepted", () => { if (++accepted === count) resolve(); }));
    out.on("sendable", () => { while (out.sendable() && sent < count) out.send({ body: `${sent++}`, durable: true }); });
    await done;
    const box = connection.open_receiver({ source: "js-many", credit_window: 500 });
    let got = 0;
    await new Promise((resolve) => box.on("message", ({ message }) => {
      assert.equal(message.body, `${got}`);
      if (++got === count) resolve();
    }));
    connection.close();
  },
  async refused() {
    const connection = await connect();
    await assert.rejects(sender(connection, "a,b"), /commas/);
    const wrong = connection.open_receiver({ source: { address: "q", filter: rhea.filter.selector("a = = 1") } });
    await new Promise((resolve) => wrong.once("receiver_error", resolve));
    assert.match(wrong.error.description, /selector/);
    const out = await sender(connection, "js-still");
    assert.equal(await send(out, { body: "1" }), "accepted");
    connection.close();
  },
};

for (const step of steps) {
  await all[step]();
  console.log(`${step} done`);
}
process.exit(0);
