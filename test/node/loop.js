// A plain loop from an outbox to a queue, by the library's own addBulk: what loop_test.go of test/brokers does in Go.
'use strict';
const orders = JSON.parse(process.env.BROKERS_LOOP);
const { Queue } = require('bullmq');
const { Client } = require('pg');

const wait = (ms) => new Promise((done) => { setTimeout(done, ms); });

async function turn(db, queue) {
  await db.query('BEGIN');
  const { rows } = await db.query(`SELECT id::text, event_type, payload FROM outbox_events
    WHERE published_at IS NULL ORDER BY seq LIMIT 500 FOR UPDATE SKIP LOCKED`);
  if (rows.length > 0) {
    await queue.addBulk(rows.map((r) => ({ name: r.event_type, data: r.payload, opts: { jobId: r.id } })));
    await db.query('UPDATE outbox_events SET published_at = now() WHERE id = ANY($1::uuid[])', [rows.map((r) => r.id)]);
  }
  await db.query('COMMIT');
  return rows.length;
}

async function session() {
  const db = new Client(orders.Database);
  const [host, port] = orders.Broker.split(':');
  await db.connect();
  const queue = new Queue(orders.Topic, { connection: { host, port: Number(port) } });
  queue.on('error', () => {}); // addBulk fails, or waits for the next connection
  for (;;) {
    if (await turn(db, queue) < 500) await wait(10);
  }
}

(async () => {
  for (;;) {
    await session().catch((e) => console.error(e));
    await wait(250);
  }
})();
