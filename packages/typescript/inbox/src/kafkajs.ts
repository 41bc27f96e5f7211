// Reads topics of Kafka with kafkajs and hands their messages to an inbox.
import type { Admin, Consumer, ConsumerConfig, EachBatchPayload, IHeaders, Kafka, KafkaMessage } from 'kafkajs'
import { randomUUID } from 'node:crypto'
import { SetBack, describe } from './errors.js'
import type { Inbox } from './inbox.js'
import { inPortions, lanesOf } from './lanes.js'
import { read, type Message } from './message.js'
import { startRetries } from './retries.js'
import { Slots } from './solitude.js'

export interface KafkaOptions {
  kafka: Kafka
  topics: string[]
  /** Default: the inbox's name. */
  groupId?: string
  /** Where a topic begins that neither the database nor the group knows. Default: earliest. */
  start?: 'earliest' | 'latest'
  /** Handlers that run at once. Default: the pool's size less two, for each process. */
  workers?: number
  /** Passed to kafka.consumer. */
  consumer?: Omit<ConsumerConfig, 'groupId'>
}

export interface Running {
  /** Stops reading, waits for the handlers that run, and leaves the group. */
  stop(): Promise<void>
  /** Why no events are handled; undefined: all is well. */
  notReady(): string | undefined
}

interface Place {
  topic: string
  partition: number
  epoch: number
  /** Up to here everything is decided. */
  next: bigint
  /** What this process has read from the database, or wrote to it, last. */
  wrote: bigint
  /** Below it, an earlier process may have died of a message. */
  carefulBelow: bigint
}

const windowSize = 500 // messages of a partition that are in flight, and that a crash makes suspects
const checkEveryMs = 1_000

/** Joins the group and handles events until stop. */
export async function run(inbox: Inbox, options: KafkaOptions): Promise<Running> {
  if (inbox.types === 0) throw new TypeError('inbox: there is no handler: call on before run')
  if (!options.topics?.length) throw new TypeError('inbox: name the topics to read')
  const reader = new Reader(inbox, options)
  await reader.start()
  return reader
}

class Reader implements Running {
  private readonly consumer: Consumer
  private readonly admin: Admin
  private readonly group: string
  private readonly holder = randomUUID()
  private readonly places = new Map<string, Place>()
  private readonly slots: Slots
  private readonly workers: number
  private joined = Promise.resolve()
  private trouble: string | undefined = 'not in the group yet'
  private stopping = false
  private beginning = false
  private retries: { stop: () => Promise<void> } | undefined
  private checking: NodeJS.Timeout | undefined

  constructor(private readonly inbox: Inbox, private readonly options: KafkaOptions) {
    this.group = options.groupId ?? inbox.options.name
    this.workers = Math.max(1, Math.min(options.workers ?? Infinity, inbox.options.pool.options.max - 2))
    this.slots = new Slots(this.workers)
    this.admin = options.kafka.admin()
    this.consumer = options.kafka.consumer({
      ...options.consumer, groupId: this.group, retry: { restartOnFailure: async () => true, ...options.consumer?.retry },
    })
  }

  notReady() { return this.trouble }

  async start() {
    await this.admin.connect()
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: this.options.topics, fromBeginning: this.options.start !== 'latest' })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.joined = this.join(payload.memberAssignment)
    })
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => {
      this.trouble = describe(payload.error)
      this.inbox.log('error', `inbox: the consumer of Kafka failed and is started again: ${this.trouble}`)
    })
    this.retries = startRetries(this.inbox)
    this.checking = setInterval(() => void this.check(), checkEveryMs)
    await this.consumer.run({
      autoCommit: true, autoCommitInterval: 1_000, eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: this.workers, eachBatch: payload => this.batch(payload),
    })
  }

  async stop() {
    this.stopping = true
    clearInterval(this.checking)
    await this.consumer.disconnect()
    await this.retries?.stop()
    await this.admin.disconnect()
    await this.inbox.ledger.release(this.holder)
  }

  /** Begins each assigned partition at the lower of the database's offset and the group's. */
  private async join(assigned: Record<string, number[]>) {
    this.places.clear()
    await this.untilAvailable(async () => {
      await this.inbox.ledger.begin()
      for (const [topic, partitions] of Object.entries(assigned)) {
        const ends = await this.admin.fetchTopicOffsets(topic)
        const [committed] = await this.admin.fetchOffsets({ groupId: this.group, topics: [topic] })
        for (const partition of partitions) {
          const end = ends.find(e => e.partition === partition)
          if (!end) continue
          const group = BigInt(committed?.partitions.find(p => p.partition === partition)?.offset ?? -1)
          await this.place(topic, partition, group, BigInt(end.low), BigInt(end.high))
        }
      }
    })
    this.trouble = undefined
  }

  private async place(topic: string, partition: number, group: bigint, low: bigint, high: bigint) {
    const first = group >= 0n ? group : this.options.start === 'latest' ? high : low
    const [start] = await this.inbox.ledger.starts(this.holder, [{ topic, partition, next: first }])
    let next = start!.next < first ? start!.next : first
    if (next < low) {
      this.inbox.log('error', `inbox: ${low - next} records of ${topic}/${partition}, ${next} to ${low - 1n}, were ` +
        'deleted by the topic before they were read')
      next = low
    }
    const carefulBelow = start!.unclean ? next + BigInt(windowSize) : 0n
    this.places.set(`${topic}/${partition}`, {
      topic, partition, next, wrote: start!.next, carefulBelow, epoch: this.inbox.ledger.epoch,
    })
    this.consumer.seek({ topic, partition, offset: String(next) })
  }

  private async batch({ batch, resolveOffset, heartbeat, isRunning, isStale }: EachBatchPayload) {
    await this.joined
    const place = this.places.get(`${batch.topic}/${batch.partition}`)
    if (!place) return
    for (let at = 0; at < batch.messages.length; at += windowSize) {
      if (this.stopping || !isRunning() || isStale()) return
      const messages = batch.messages.slice(at, at + windowSize).map(m => message(batch.topic, batch.partition, m))
      const last = messages.at(-1)!.offset
      try {
        if (!await this.window(messages, place, heartbeat)) return
      } catch (error) {
        if (!(error instanceof SetBack)) throw error
        return await this.beginAgain(place)
      }
      resolveOffset(String(last))
      this.inbox.options.metrics?.lag(batch.topic, batch.partition, Number(BigInt(batch.highWatermark) - place.next))
    }
  }

  /** Decides all messages of a window, each key's in order, and writes how far that is. false: it was given up. */
  private async window(messages: Message[], place: Place, heartbeat: () => Promise<void>): Promise<boolean> {
    const next = messages.at(-1)!.offset + 1n
    let lost: unknown
    const beat = setInterval(() => { heartbeat().catch(error => { lost ??= error }) }, 500)
    try {
      do {
        const size = () => messages[0]!.offset < place.carefulBelow ? 1 : this.inbox.pace.next()
        await inPortions(lanesOf(messages), this.workers, size, portion => this.slots.run(async () => {
          try {
            if (!lost) await this.portion(portion, place)
          } catch (error) {
            if (!(error instanceof SetBack)) throw error
            lost = error
          }
        }))
        if (lost) throw lost
        if (this.stopping) return false
      } while (await this.untilAvailable(() => this.inbox.ledger.note([{ ...place, next }], messages.map(read))))
      if (this.stopping) return false
      place.next = next
      if (next > place.wrote) place.wrote = next
      return true
    } finally {
      clearInterval(beat)
    }
  }

  private async portion(messages: Message[], place: Place) {
    const decided = await this.inbox.together(messages, place)
    for (const [n, m] of messages.entries()) {
      if (!decided[n]) await this.untilAvailable(() => this.inbox.handle(m, m.offset < place.carefulBelow, place))
    }
  }

  /** Notices a restored database also while no messages come. */
  private async check() {
    try {
      const places = Array.from(this.places.values(), p => ({ ...p, next: p.wrote }))
      if (places.length === 0) return
      await this.inbox.ledger.note(places).catch(async error => {
        if (!(error instanceof SetBack)) throw error
        await this.beginAgain(places[0]!)
      })
    } catch (error) {
      this.inbox.log('warn', `inbox: ${describe(error)}`)
    }
  }

  /** Reads all partitions again from the database's offsets, unless that was done since the place was read. */
  private async beginAgain(place: Place) {
    if (place.epoch !== this.inbox.ledger.epoch || this.beginning) return await this.joined
    this.inbox.log('error', 'inbox: the database has less than this process committed: it was restored. Reading again ' +
      'from its offsets')
    const assigned: Record<string, number[]> = {}
    for (const { topic, partition } of this.places.values()) (assigned[topic] ??= []).push(partition)
    this.beginning = true
    this.joined = this.join(assigned).finally(() => { this.beginning = false })
    await this.joined
  }

  /** Runs work again while the database or the broker does not answer, but not after SetBack. undefined: stopping. */
  private async untilAvailable<T>(work: () => Promise<T>): Promise<T | undefined> {
    for (let pause = 50; !this.stopping; pause = Math.min(pause * 2, 2_000)) {
      try {
        const result = await work()
        this.trouble = undefined
        return result
      } catch (error) {
        if (error instanceof SetBack) throw error
        if (this.trouble !== describe(error)) this.inbox.log('error', `inbox: ${describe(error)}`)
        this.trouble = describe(error)
        await new Promise(resolve => setTimeout(resolve, pause))
      }
    }
    return undefined
  }
}

function message(topic: string, partition: number, m: KafkaMessage): Message {
  return { topic, partition, offset: BigInt(m.offset), key: m.key, value: m.value, headers: texts(m.headers) }
}

/** The last value of each header, as text. */
function texts(headers: IHeaders | undefined): Record<string, string> {
  const found: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers ?? {})) {
    const last = Array.isArray(value) ? value.at(-1) : value
    if (last !== undefined) found[name] = last.toString()
  }
  return found
}
