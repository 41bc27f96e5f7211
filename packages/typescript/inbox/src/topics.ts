// Reads topics of brokers other than Kafka, each by one process at a time, and hands their messages to an inbox. What
// a topic is, and how its messages are read, is a source's: ioredis.ts, nats.ts, amqplib.ts and bullmq.ts have them.
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { SetBack, describe } from './errors.js'
import type { Inbox } from './inbox.js'
import { inPortions, lanesOf } from './lanes.js'
import { Lease } from './lease.js'
import { read, type Message } from './message.js'
import { startRetries } from './retries.js'
import { Slots } from './solitude.js'

/** How a topic stands, by its broker, for one who has read what is below next. */
export interface Bounds {
  /** Tells the topic from another one of its name; '' if the broker does not. */
  id: string
  /** The lowest offset that can be read. */
  first: bigint
  /** Below next: it is not the topic that was read. undefined: the broker does not tell. */
  end?: bigint | undefined
  /** Messages from next on. undefined: the broker does not tell. */
  unread?: number | undefined
  /** What is said of messages that are gone before they were read. */
  lost?: string | undefined
}

/** An open topic. Its calls come one after the other, but for bounds. After an error of any it is closed. */
export interface Topic {
  bounds(next: bigint): Promise<Bounds>
  /** Begins to read. It returns once no other process has messages of a queue, and throws if the signal comes first. */
  seek(next: bigint, signal: AbortSignal): Promise<void>
  /** Messages in order, with offsets that grow. None: there was none for about a second. */
  next(): Promise<Message[]>
  /** Takes messages that are decided out of a queue. */
  settle(): Promise<void>
  /** Gives back what is not settled. */
  close(): Promise<void>
}

export interface Source {
  /** What is settled is gone, and offsets are numbers of this process. Else offsets are the broker's. */
  queue: boolean
  topics: string[]
  open(topic: string): Promise<Topic>
}

/** What all sources take. */
export interface ReadOptions {
  /** Handlers that run at once. Default: the pool's size less two, for each process. */
  workers?: number
}

export interface Running {
  /** Stops reading, and waits for the handlers that run. */
  stop(): Promise<void>
  /** Why no events are handled; undefined: all is well, or another process reads. */
  notReady(): string | undefined
}

interface Place {
  topic: string
  partition: 0
  epoch: number
  /** Up to here everything is decided. */
  next: bigint
  /** What this process has read from the database, or wrote to it, last. */
  wrote: bigint
  /** Below it, an earlier process may have died of a message. */
  carefulBelow: bigint
  /** Its reason is why the topic is read no more. */
  over: AbortController
  lost: string | undefined
}

/** Messages of a topic that are in flight, and that a crash makes suspects. Sources return at most so many at once. */
export const windowSize = 500

const holdEveryMs = 1_000
const lookEveryMs = 5_000

/** Reads topics and handles events until stop. */
export async function runTopics(inbox: Inbox, source: Source, options: ReadOptions): Promise<Running> {
  if (inbox.types === 0) throw new TypeError('inbox: there is no handler: call on before run')
  if (!source.topics?.length || source.topics.some(name => !name)) throw new TypeError('inbox: name what to read')
  const readers = new Readers(inbox, source, options.workers)
  readers.start()
  return readers
}

class Held extends Error {}

class Readers implements Running {
  private readonly lease: Lease
  private readonly workers: number
  private readonly slots: Slots
  private readonly stopping = new AbortController()
  private readonly troubles = new Map<string, string>() // by topic
  private retries: { stop: () => Promise<void> } | undefined
  private serving: Promise<void>[] = []
  private beginning: Promise<void> | undefined

  constructor(private readonly inbox: Inbox, private readonly source: Source, workers = Infinity) {
    this.workers = Math.max(1, Math.min(workers, inbox.options.pool.options.max - 2))
    this.slots = new Slots(this.workers)
    this.lease = new Lease(inbox, randomUUID())
  }

  notReady() { return this.troubles.values().next().value }

  start() {
    this.retries = startRetries(this.inbox)
    this.serving = this.source.topics.map(topic => this.serve(topic))
  }

  async stop() {
    this.stopping.abort()
    await Promise.all(this.serving)
    await this.retries?.stop()
    await this.inbox.ledger.release(this.lease.holder)
  }

  /** Reads a topic whenever no other process does. */
  private async serve(topic: string) {
    let pause = 50
    for (let said = false; !this.stopping.signal.aborted;) {
      const began = Date.now()
      try {
        await this.once(topic)
      } catch (error) {
        if (this.stopping.signal.aborted) return
        if (Date.now() - began > 5_000) pause = 50
        if (error instanceof Held) {
          if (!said) this.inbox.log('info', `inbox: standing by: ${describe(error)}`)
          said = true
          pause = holdEveryMs
          this.troubles.delete(topic)
        } else {
          this.trouble(topic, error)
          said = false
        }
      }
      await sleep(pause, this.stopping.signal)
      pause = Math.min(pause * 2, 2_000)
    }
  }

  /** Takes the topic and reads it, until that is over. */
  private async once(name: string) {
    if (this.inbox.ledger.epoch === 0) await this.begin(0)
    if (await this.lease.held(name)) throw new Held(`another process reads ${name}`)
    const topic = await this.source.open(name)
    const over = new AbortController()
    const stop = () => over.abort(new Error('stopping'))
    this.stopping.signal.addEventListener('abort', stop)
    if (this.stopping.signal.aborted) stop()
    const { epoch } = this.inbox.ledger
    try {
      const place = await this.take(name, topic, epoch, over)
      await this.look(place, topic)
      void this.every(holdEveryMs, over.signal, () => this.hold(place))
      void this.every(lookEveryMs, over.signal, () => this.look(place, topic))
      await topic.seek(place.next, over.signal)
      this.troubles.delete(name)
      while (!over.signal.aborted) await this.window(await topic.next(), place, topic)
      over.signal.throwIfAborted()
    } catch (error) {
      if (error instanceof SetBack) await this.begin(epoch)
      throw error
    } finally {
      this.stopping.signal.removeEventListener('abort', stop)
      over.abort(new Error('the topic is closed'))
      await topic.close().catch(error => this.inbox.log('warn', `inbox: close ${name}: ${describe(error)}`))
    }
  }

  /** Begins an epoch, unless one has begun since. */
  private async begin(since: number) {
    this.beginning ??= (async () => {
      if (since === this.inbox.ledger.epoch) await this.inbox.ledger.begin()
    })().finally(() => { this.beginning = undefined })
    await this.beginning
  }

  private async take(topic: string, from: Topic, epoch: number, over: AbortController): Promise<Place> {
    const bounds = await from.bounds(0n)
    const start = await this.lease.take(topic, bounds)
    if (!start) throw new Held(`another process reads ${topic}`)
    if (start.replaced !== undefined) {
      this.inbox.log('error', `inbox: ${topic} is not the one that was read up to ${start.replaced}: it was deleted and ` +
        'created again. Reading it from its start')
    }
    const next = this.source.queue && bounds.first > start.next ? bounds.first : start.next
    const carefulBelow = start.unclean ? next + BigInt(windowSize) : 0n
    return { topic, partition: 0, epoch, next, wrote: start.next, carefulBelow, over, lost: undefined }
  }

  /** Tells others that this process reads the topic, and notices a restored database, also while no messages come. */
  private async hold(place: Place) {
    try {
      const mine = await this.lease.hold(place.topic)
      if (!this.source.queue) await this.note(place, place.wrote)
      if (!mine) place.over.abort(new Held(`another process has taken ${place.topic} over: this one did not answer in time`))
    } catch (error) {
      if (error instanceof SetBack) place.over.abort(error)
      // Else the database does not answer, and no other process can take it, either.
    }
  }

  /** Asks how the topic stands. */
  private async look(place: Place, topic: Topic) {
    try {
      const { next } = place
      const bounds = await topic.bounds(next)
      if (bounds.end !== undefined && bounds.end < next) {
        await this.lease.rewind(place.topic, bounds.first)
        throw new Error(`${place.topic} ends at ${bounds.end}, and was read up to ${next}: it was deleted and created again, or ` +
          'set back. Reading it from its start')
      }
      if (bounds.lost && place.lost !== bounds.lost) this.inbox.log('error', `inbox: ${bounds.lost}`)
      place.lost = bounds.lost
      if (bounds.unread !== undefined) this.inbox.options.metrics?.lag(place.topic, 0, bounds.unread)
    } catch (error) {
      place.over.abort(error)
    }
  }

  /** Decides messages, each key's in order, and writes how far that is. */
  private async window(messages: Message[], place: Place, topic: Topic) {
    if (messages.length === 0) return
    const { signal } = place.over
    const next = messages.at(-1)!.offset + 1n
    do {
      const size = () => messages[0]!.offset < place.carefulBelow ? 1 : this.inbox.pace.next()
      await inPortions(lanesOf(messages), this.workers, size, portion => this.slots.run(() => this.portion(portion, place)))
      signal.throwIfAborted()
    } while (await this.untilAvailable(place, () => this.note(place, next, messages)))
    signal.throwIfAborted()
    place.next = next
    if (this.source.queue) await topic.settle()
  }

  private async portion(messages: Message[], place: Place) {
    const since = this.source.queue ? undefined : place
    const decided = await this.untilAvailable(place, () => this.inbox.together(messages, since)) ?? []
    for (const [n, m] of messages.entries()) {
      if (!decided[n]) await this.untilAvailable(place, () => this.inbox.handle(m, m.offset < place.carefulBelow, since))
    }
  }

  /** Writes how far a log is, and returns how many of the messages, which were decided, the database lacks. */
  private async note(place: Place, next: bigint, messages: Message[] = []): Promise<number> {
    const { topic, partition, wrote } = place
    const places = this.source.queue ? [] : [{ topic, partition, wrote, next }]
    const lacks = await this.inbox.ledger.note(places, messages.map(read))
    if (lacks === 0 && next > place.wrote) place.wrote = next
    return lacks
  }

  /** Runs work again while the database does not answer, until the place is over: undefined. */
  private async untilAvailable<T>(place: Place, work: () => Promise<T>): Promise<T | undefined> {
    const { signal } = place.over
    for (let pause = 50; !signal.aborted; pause = Math.min(pause * 2, 2_000)) {
      try {
        const result = await work()
        this.troubles.delete(place.topic)
        return result
      } catch (error) {
        if (error instanceof SetBack) place.over.abort(error)
        else this.trouble(place.topic, error)
        await sleep(pause, signal)
      }
    }
    return undefined
  }

  private trouble(topic: string, error: unknown) {
    const text = describe(error)
    if (this.troubles.get(topic) !== text) this.inbox.log('error', `inbox: ${topic}: ${text}`)
    this.troubles.set(topic, text)
  }

  private async every(ms: number, signal: AbortSignal, work: () => Promise<void>) {
    for (;;) {
      await sleep(ms, signal)
      if (signal.aborted) return
      await work()
    }
  }
}

/** Waits, at most until the signal comes. */
export async function sleep(ms: number, signal: AbortSignal) {
  if (!signal.aborted) await pause(ms, undefined, { signal }).catch(() => undefined)
}
