// A worker of a real library: node worker.js bullmq|bullmq5|bull PORT QUEUE... It writes a line of JSON for each job that
// it works on. FAIL_FIRST=1 lets the first attempt of each job fail; CONCURRENCY is how many jobs at a time.
'use strict';
const [library, port, ...names] = process.argv.slice(2);
const concurrency = Number(process.env.CONCURRENCY || 1);
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');

const work = (queue) => async (job) => {
  if (process.env.FAIL_FIRST && job.attemptsMade === 0) throw new Error('the first attempt fails');
  say({ queue, id: String(job.id), name: job.name, data: job.data, opts: job.opts, timestamp: job.timestamp });
};

if (library === 'bull') {
  const Bull = require('bull');
  for (const name of names) {
    const queue = new Bull(name, { redis: { port: Number(port), host: '127.0.0.1' } });
    queue.on('error', () => {}); // the server may be away
    queue.process('*', concurrency, work(name));
    queue.isReady().then(() => say({ ready: name }));
  }
} else {
  const { Worker, Queue } = require(library);
  for (const name of names) {
    const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };
    const queue = new Queue(name, { connection }); // writes what the queue was opened by
    queue.on('error', () => {});
    const worker = new Worker(name, work(name), { connection, concurrency, drainDelay: 600 });
    worker.on('error', () => {});
    Promise.all([queue.waitUntilReady(), worker.waitUntilReady()]).then(() => say({ ready: name }));
  }
}
