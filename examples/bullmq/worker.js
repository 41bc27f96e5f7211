// A worker of BullMQ that counts the orders of each customer in Postgres, and each event once, although BullMQ can do a
// job twice (a worker that dies, or stalls). docs/brokers/bullmq.md explains it.
//
//   cd examples/bullmq && npm install
//   DATABASE_URL=postgres://app@db/shop REDIS_URL=redis://redis:6379 QUEUES=outbox.event.order npm start
'use strict';
const { Worker } = require('bullmq');
const { Pool } = require('pg');
const Redis = require('ioredis');

const pool = new Pool({ connectionString: process.env.DATABASE_URL });
const queues = process.env.QUEUES.split(',');
const options = {
  concurrency: Number(process.env.CONCURRENCY || 1), // above 1: two events of a key can be in work at a time
  lockDuration: Number(process.env.LOCK_MS || 30000), // after which the job of a worker that died is done again
  stalledInterval: Number(process.env.LOCK_MS || 30000),
};

const tables = `
  CREATE TABLE IF NOT EXISTS processed_events (id text PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now());
  CREATE TABLE IF NOT EXISTS orders_of_customer (customer text PRIMARY KEY, orders bigint NOT NULL)`;

// What the event does. It writes by the client of the transaction, and by nothing else.
async function handle(client, job) {
  await client.query(
    `INSERT INTO orders_of_customer VALUES ($1, 1)
     ON CONFLICT (customer) DO UPDATE SET orders = orders_of_customer.orders + 1`,
    [job.data.payload.customer],
  );
}

// The id goes into the same transaction as what the event does: both are there, or neither. A second worker with the
// same event waits at the id until the first has ended.
async function once(job) {
  const client = await pool.connect();
  let failure;
  try {
    await client.query('BEGIN');
    const id = job.data.id;
    const fresh = await client.query('INSERT INTO processed_events (id) VALUES ($1) ON CONFLICT DO NOTHING', [id]);
    if (fresh.rowCount === 1) await handle(client, job);
    await client.query('COMMIT');
  } catch (err) {
    failure = err;
    throw err; // BullMQ tries again, as attempts and backoff say
  } finally {
    // After a failure nobody knows what the connection is in: it is closed, and Postgres rolls back.
    client.release(failure);
  }
}

async function main() {
  await pool.query(tables);
  const connection = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
  const workers = queues.map((queue) => new Worker(queue, once, { connection, ...options }));
  for (const worker of workers) {
    worker.on('failed', (job, err) => console.error(`job ${job && job.id}: ${err.message}`));
    worker.on('error', (err) => console.error(err.message)); // of the connection, which is tried again
  }
  await Promise.all(workers.map((worker) => worker.waitUntilReady()));
  console.log('ready');
  const stop = async () => {
    await Promise.all(workers.map((worker) => worker.close())); // waits for the jobs in work
    await pool.end();
    process.exit(0);
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

pool.on('error', (err) => console.error(err.message));
main().catch((err) => {
  console.error(err);
  process.exit(1);
});
