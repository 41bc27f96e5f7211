// Works on queues of BullMQ. A queue is worked on by one process at a time, and a job is completed when its event is
// decided: done, parked or dead. What fails is tried again by the inbox, and not by BullMQ.
import { Queue, Worker, type Job, type QueueOptions } from 'bullmq'
import { randomUUID } from 'node:crypto'
import { describe } from './errors.js'
import type { Inbox } from './inbox.js'
import type { Message } from './message.js'
import { runTopics, sleep, type Bounds, type ReadOptions, type Running, type Topic } from './topics.js'

export type { Running }

export interface WorkOptions extends ReadOptions {
  /** As for a Worker. An instance of ioredis needs maxRetriesPerRequest: null, and the caller closes it. */
  connection: QueueOptions['connection']
  /** No other workers may have them. */
  queues: string[]
  /** As the relay has it in bullmq.prefix. Default: bull. */
  prefix?: string
  /** How long the jobs of a process that has died stay with it. Default: 30 s. */
  lockDurationMs?: number
}

/** Works on the queues until stop. */
export async function run(inbox: Inbox, options: WorkOptions): Promise<Running> {
  const open = async (name: string) => new Jobs(name, inbox, options)
  return await runTopics(inbox, { queue: true, topics: options.queues, open }, options)
}

// Jobs of a process that died come again at the front, but in any order among them. So no process has more than this,
// and each window is sorted.
const most = 100

class Jobs implements Topic {
  private readonly first = BigInt(Date.now()) * 1_000n // a queue has no position. A later process's numbers are higher
  private offset = this.first
  private readonly token = randomUUID()
  private readonly worker: Worker
  private readonly queue: Queue
  private readonly lockDuration: number
  private readonly renewing: NodeJS.Timeout
  private taken: Job[] = []

  constructor(private readonly name: string, private readonly inbox: Inbox, { connection, prefix, lockDurationMs }: WorkOptions) {
    this.lockDuration = lockDurationMs ?? 30_000
    const options = { connection, ...prefix !== undefined && { prefix } }
    this.queue = new Queue(name, options)
    this.worker = new Worker(name, null, { ...options, lockDuration: this.lockDuration, stalledInterval: this.lockDuration / 2,
      maxStalledCount: Number.MAX_SAFE_INTEGER, drainDelay: 1 })
    this.queue.on('error', error => this.warn(error))
    this.worker.on('error', error => this.warn(error))
    this.renewing = setInterval(() => {
      for (const job of this.taken) job.extendLock(this.token, this.lockDuration).catch(error => this.warn(error))
    }, this.lockDuration / 3)
  }

  async bounds(): Promise<Bounds> {
    return { id: 'queue', first: this.first, unread: await this.queue.getWaitingCount() }
  }

  /** Begins when no jobs are with others: those of a process that died go back to the front. */
  async seek(_: bigint, signal: AbortSignal) {
    await this.worker.startStalledCheckTimer()
    for (let said = false; ; said = true) {
      const active = await this.queue.getActiveCount()
      if (active === 0) return
      if (!said) this.inbox.log('warn', `inbox: waiting for ${active} jobs of queue ${this.name} that another process has, or had ` +
        'when it died')
      await sleep(200, signal)
      signal.throwIfAborted()
    }
  }

  async next(): Promise<Message[]> {
    const take = async (block: boolean) => {
      const job = await this.worker.getNextJob(this.token, { block })
      if (job) this.taken.push(job)
      return job !== undefined
    }
    if (!await take(true)) return []
    for (const n of [9, most - 10]) { // few at first: an empty queue has nothing for all of them
      if ((await Promise.all(Array.from({ length: n }, () => take(false)))).includes(false)) break
    }
    this.taken.sort((a, b) => compare(rank(a), rank(b)))
    return this.taken.map(job => message(this.name, this.offset++, job))
  }

  async settle() {
    const decided = this.taken
    this.taken = []
    await Promise.all(decided.map(job => job.moveToCompleted(null, this.token, false)))
  }

  async close() {
    clearInterval(this.renewing)
    for (const job of this.taken.reverse()) { // the first one is at the front then
      await job.moveToWait(this.token).catch(error => this.warn(error)) // else BullMQ does that when its lock expires
    }
    await Promise.all([this.worker.close(), this.queue.close()])
  }

  private warn(error: unknown) { this.inbox.log('warn', `inbox: queue ${this.name}: ${describe(error)}`) }
}

/** Where the relay added a job: its takeovers, and then the place in the log, or before that the row of the table. */
function rank(job: Job): [bigint, bigint, bigint] {
  const headers = outbox(job).headers ?? {}
  const epoch = /^\d+$/.exec(String(headers['x-outbox-epoch']))
  if (!epoch) return [0n, 0n, 0n]
  const position = String(headers['x-outbox-position'])
  const [, row] = /^table\/\d+\/(\d+)$/.exec(position) ?? []
  if (row) return [BigInt(epoch[0]), 0n, BigInt(row)]
  const [, high, low, index] = /^([0-9A-F]+)\/([0-9A-F]+)\/(\d+)$/i.exec(position) ?? []
  return [BigInt(epoch[0]), (BigInt(`0x${high ?? 0}`) << 32n) + BigInt(`0x${low ?? 0}`), BigInt(index ?? 0)]
}

function compare(a: bigint[], b: bigint[]): number {
  const n = a.findIndex((value, n) => value !== b[n])
  return n < 0 ? 0 : a[n]! < b[n]! ? -1 : 1
}

interface Outbox { key?: unknown; headers?: Record<string, unknown>; encoding?: string }

/** What the relay adds to a value: in the options where the data is the value alone, and else in the data. */
const outbox = (job: Job): Outbox => (job.opts as { outbox?: Outbox }).outbox ?? job.data ?? {}

/** Undoes what the relay does to make a job. A job of another program has its data as the payload. */
function message(topic: string, offset: bigint, job: Job): Message {
  const { headers, encoding, ...rest } = outbox(job)
  const isEvent = !('outbox' in job.opts) && headers !== undefined
  const { id, event_type, aggregate_type, created_at } = isEvent ? job.data : {} as Record<string, unknown>
  const key = isEvent ? job.data.aggregate_id ?? job.data.key : rest.key
  const m: Message = { topic, partition: 0, offset, key: bytes(key), value: null, headers: {} }
  for (const [name, value] of Object.entries({ ...headers, id, event_type, aggregate_type, created_at })) {
    const text = bytes(value)
    if (text) m.headers[name] = text.toString()
  }
  if (!m.headers.id && !m.headers.ce_id) m.headers.id = job.id!
  if (!m.headers.event_type && !m.headers.ce_type) m.headers.event_type = job.name
  const body = isEvent ? job.data.payload : job.data
  if (encoding === 'base64') m.value = Buffer.from(body, 'base64')
  else if (encoding === 'text') m.value = Buffer.from(body)
  else if (encoding !== 'tombstone') m.value = Buffer.from(JSON.stringify(body ?? null))
  return m
}

/** A string, or what is no text: {base64: …}. */
function bytes(value: unknown): Buffer | null {
  if (typeof value === 'string') return Buffer.from(value)
  const encoded = (value as { base64?: unknown } | null | undefined)?.base64
  return typeof encoded === 'string' ? Buffer.from(encoded, 'base64') : null
}
