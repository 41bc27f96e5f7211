// What a person does with a queue: node queue.js bullmq|bullmq5|bull PORT QUEUE pause|resume|orphans|again|add [ID]
'use strict';
const [library, port, name, what, id] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(port) };
const queue = library === 'bull'
  ? new (require('bull'))(name, { redis: connection })
  : new (require(library).Queue)(name, { connection });
const done = {
  pause: () => queue.pause(),
  resume: () => queue.resume(),
  orphans: () => queue.removeOrphanedJobs(),
  again: async () => { // every job that is done, once more under another id
    for (const job of await queue.getCompleted()) {
      await queue.add(job.name, job.data, { ...job.opts, jobId: `again-${job.id}` });
    }
  },
  add: () => queue.add('foreign', { foreign: true }, { jobId: id }),
};

done[what]().then(() => queue.close()).then(() => console.log('done'), (e) => {
  console.error(e);
  process.exit(1);
});
