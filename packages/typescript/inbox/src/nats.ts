// Reads subjects of NATS JetStream. A subject is read in the stream's order by one process at a time, from the position
// in the database; the server has only a short-lived consumer. So the stream must keep what was read.
import { DeliverPolicy, RetentionPolicy, jetstreamManager } from '@nats-io/jetstream'
import type { Consumer, ConsumerMessages, JetStreamManager, JsMsg } from '@nats-io/jetstream'
import { Arrivals } from './arrivals.js'
import type { Inbox } from './inbox.js'
import type { Message } from './message.js'
import { runTopics, windowSize, type Bounds, type ReadOptions, type Running, type Topic } from './topics.js'

export type { Running }

export interface SubjectOptions extends ReadOptions {
  /** Connected with maxReconnectAttempts: -1. The caller closes it. */
  connection: Parameters<typeof jetstreamManager>[0]
  /** Without wildcards. */
  subjects: string[]
}

/** Reads the subjects and handles events until stop. */
export async function run(inbox: Inbox, options: SubjectOptions): Promise<Running> {
  const odd = options.subjects?.find(name => /[*>\s]/.test(name))
  if (odd !== undefined) throw new TypeError(`inbox: the subject ${JSON.stringify(odd)} has wildcards or blanks: name each subject`)
  const open = (name: string) => openSubject(options.connection, name)
  return await runTopics(inbox, { queue: false, topics: options.subjects, open }, options)
}

async function openSubject(connection: SubjectOptions['connection'], name: string): Promise<Topic> {
  const manager = await jetstreamManager(connection)
  const stream = await manager.streams.find(name)
  const { config } = await manager.streams.info(stream)
  if (config.retention !== RetentionPolicy.Limits) {
    throw new Error(`stream ${stream} of subject ${name} has the retention ${config.retention}, and deletes messages that the ` +
      'inbox would need again: make a stream with the retention limits that has it as its source')
  }
  return new Subject(name, stream, manager)
}

class Subject implements Topic {
  private consumer: Consumer | undefined
  private messages: ConsumerMessages | undefined
  private readonly arrivals = new Arrivals<JsMsg>(windowSize)

  constructor(private readonly name: string, private readonly stream: string, private readonly manager: JetStreamManager) {}

  async bounds(next: bigint): Promise<Bounds> {
    const { created, state, config } = await this.manager.streams.info(this.stream)
    const last = await this.manager.streams.getMessage(this.stream, { last_by_subj: this.name })
    const first = BigInt(Math.max(state.first_seq, 1))
    const end = last ? BigInt(last.seq) + 1n : first
    const unread = !last || end <= next ? 0 : (await this.consumer?.info())?.num_pending
    const isAlone = config.subjects?.length === 1 && config.subjects[0] === this.name
    const lost = next === 0n || first <= next || (last && end <= next) ? undefined
      : `stream ${this.stream} deleted ${isAlone ? `${first - next} messages` : 'messages, some perhaps'} of subject ${this.name} ` +
        `before they were read, between ${next} and ${first - 1n}. Their effects are missing`
    return { id: created, first, end: BigInt(state.last_seq) + 1n, unread, lost }
  }

  async seek(next: bigint) {
    this.consumer = await this.manager.jetstream().consumers.get(this.stream, {
      filter_subjects: [this.name], deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: Number(next > 0n ? next : 1n),
    })
    this.messages = await this.consumer.consume({ max_messages: windowSize })
    void this.pump(this.messages)
  }

  private async pump(messages: ConsumerMessages) {
    try {
      for await (const m of messages) {
        this.arrivals.push(m)
        await this.arrivals.room()
      }
      this.arrivals.fail(new Error(`reading subject ${this.name} has ended`))
    } catch (error) {
      this.arrivals.fail(error)
    }
  }

  async next() { return (await this.arrivals.take()).map(m => message(this.name, m)) }

  async settle() {}

  async close() {
    this.arrivals.fail(new Error('closed'))
    await this.messages?.close()
    await this.consumer?.delete().catch(() => undefined) // else the server forgets it
  }
}

/** Undoes what the relay does to make a message. */
function message(topic: string, m: JsMsg): Message {
  const made: Message = { topic, partition: 0, offset: BigInt(m.seq), key: null, value: Buffer.from(m.data), headers: {} }
  for (const [name, values] of m.headers ?? []) {
    const value = values.at(-1) ?? ''
    if (name === 'x-outbox-tombstone') made.value = null
    else if (name === 'x-outbox-key') made.key = Buffer.from(value)
    else if (name === 'x-outbox-key-base64') made.key = Buffer.from(value, 'base64')
    else if (!name.startsWith('Nats-')) made.headers[name] = value
  }
  return made
}
