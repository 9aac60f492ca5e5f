// What test_stompjs.py runs: @stomp/stompjs against the HTTP port that is its argument. Prints one line a step.
import assert from "node:assert/strict";
import { Client } from "@stomp/stompjs";

const brokerURLs = process.argv[2].split(",").map((port) => `ws://127.0.0.1:${port}/ws`);
const [brokerURL] = brokerURLs;
const steps = process.argv.slice(3);

function connect(config = {}) {
  return new Promise((resolve, reject) => {
    const client = new Client({
      brokerURL,
      reconnectDelay: 50,
      heartbeatIncoming: 0,
      heartbeatOutgoing: 0,
      onStompError: (frame) => reject(new Error(frame.headers.message)),
      ...config,
    });
    client.onConnect = () => resolve(client);
    client.activate();
  });
}

// The messages of a subscription, one by one.
function inbox(client, destination, headers = {}) {
  const waiting = [], ready = [];
  const sub = client.subscribe(destination, (message) => {
    if (waiting.length) waiting.shift()(message);
    else ready.push(message);
  }, headers);
  const next = () => ready.length ? Promise.resolve(ready.shift()) : new Promise((resolve) => waiting.push(resolve));
  return { next, sub };
}

function receipt(client, act) {
  return new Promise((resolve) => {
    const id = `r-${Math.random()}`;
    client.watchForReceipt(id, resolve);
    act({ receipt: id });
  });
}

const send = (client, destination, body, headers = {}) =>
  receipt(client, (extra) => client.publish({ destination, body, headers: { ...headers, ...extra } }));

const all = {
  async send() {
    const client = await connect();
    await send(client, "/queue/js-send", "grün", { color: "red:blue" });
    const message = await inbox(client, "/queue/js-send").next();
    assert.equal(message.body, "grün");
    assert.equal(message.headers.color, "red:blue");
    await client.deactivate();
  },
  async binary() {
    const client = await connect();
    const binaryBody = new Uint8Array([0, 1, 255, 0]);
    await receipt(client, (headers) => client.publish({ destination: "/queue/js-binary", binaryBody, headers }));
    const message = await inbox(client, "/queue/js-binary").next();
    assert.deepEqual([...message.binaryBody], [0, 1, 255, 0]);
    await client.deactivate();
  },
  async ack() {
    const client = await connect();
    for (const body of ["1", "2", "3"]) await send(client, "/queue/js-ack", body);
    const box = inbox(client, "/queue/js-ack", { ack: "client-individual" });
    const [one, two, three] = [await box.next(), await box.next(), await box.next()];
    one.ack();
    two.nack();
    three.ack();
    const again = await box.next();
    assert.deepEqual([again.body, again.headers.redelivered], ["2", "true"]);
    again.ack();
    await receipt(client, (headers) => box.sub.unsubscribe(headers));
    await client.deactivate();
  },
  async transaction() {
    const client = await connect();
    const box = inbox(client, "/queue/js-tx");
    const never = client.begin();
    client.publish({ destination: "/queue/js-tx", body: "never", headers: { transaction: never.id } });
    never.abort();
    const tx = client.begin();
    client.publish({ destination: "/queue/js-tx", body: "1", headers: { transaction: tx.id } });
    await send(client, "/queue/js-tx", "0");
    tx.commit();
    assert.deepEqual([(await box.next()).body, (await box.next()).body], ["0", "1"]);
    await client.deactivate();
  },
  async megabyte() {
    const client = await connect();
    const box = inbox(client, "/queue/js-big");
    const body = "0123456789abcdef".repeat(1 << 16);
    client.publish({ destination: "/queue/js-big", body });
    assert.equal((await box.next()).body, body);
    await client.deactivate();
  },
  async beats() {
    let closed = false;
    const client = await connect({
      heartbeatIncoming: 400, heartbeatOutgoing: 400, onWebSocketClose: () => { closed = true; },
    });
    await new Promise((resolve) => setTimeout(resolve, 3000));
    assert.equal(closed, false);
    await send(client, "/queue/js-beats", "still here");
    await client.deactivate();
  },
  async reconnect() {
    const client = await connect();
    await send(client, "/queue/js-again", "kept");
    const again = new Promise((resolve) => { client.onConnect = resolve; });
    client.forceDisconnect();
    await again;
    assert.equal((await inbox(client, "/queue/js-again").next()).body, "kept");
    await client.deactivate();
  },
  async many() {
    const client = await connect(), count = 10_000;
    const box = inbox(client, "/queue/js-many", { ack: "client-individual" });
    for (let at = 0; at < count; at++) client.publish({ destination: "/queue/js-many", body: `${at}` });
    for (let at = 0; at < count; at++) {
      const message = await box.next();
      assert.equal(message.body, `${at}`);
      message.ack();
    }
    await receipt(client, (headers) => box.sub.unsubscribe(headers));
    await client.deactivate();
  },
  async subprotocol() {
    const socket = new WebSocket(brokerURL, ["v10.stomp", "v12.stomp"]);
    await new Promise((resolve) => { socket.onopen = resolve; });
    assert.equal(socket.protocol, "v12.stomp");
    socket.close();
    await new Promise((resolve) => { socket.onclose = resolve; });
  },
  async failover() {
    let tried = 0;
    const client = await connect({
      reconnectDelay: 200,
      beforeConnect: (it) => { it.brokerURL = brokerURLs[tried++ % brokerURLs.length]; },
    });
    await send(client, "/queue/js-failover", "before");
    const again = new Promise((resolve) => { client.onConnect = resolve; });
    console.log("kill the leader");
    await again;
    await send(client, "/queue/js-failover", "after");
    const box = inbox(client, "/queue/js-failover");
    assert.equal((await box.next()).body, "before");
    assert.equal((await box.next()).body, "after");
    await client.deactivate();
  },
  async error() {
    const client = await connect({ reconnectDelay: 0 });
    const told = new Promise((resolve) => { client.onStompError = resolve; });
    client.publish({ destination: "/nowhere/x", body: "" });
    assert.match((await told).headers.message, /no destination begins like/);
    await client.deactivate();
  },
};

for (const step of steps) {
  await all[step]();
  console.log(`${step} done`);
}
process.exit(0);
