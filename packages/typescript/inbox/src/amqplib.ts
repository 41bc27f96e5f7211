// Reads queues of RabbitMQ with amqplib. A queue is read by one process at a time, and a message leaves it when its event
// is decided: done, parked or dead. So a restored database is not filled up again.
import type { Channel, ChannelModel, ConsumeMessage } from 'amqplib'
import { Arrivals } from './arrivals.js'
import { describe } from './errors.js'
import type { Inbox } from './inbox.js'
import type { Message } from './message.js'
import { runTopics, windowSize, type Bounds, type ReadOptions, type Running, type Topic } from './topics.js'

export type { Running }

export interface QueueOptions extends ReadOptions {
  /** Calls amqplib's connect: for each queue, and again when a connection is lost. */
  connect: () => Promise<ChannelModel>
  /** No other program may consume them. Quorum queues need x-single-active-consumer. */
  queues: string[]
}

/** Reads the queues and handles events until stop. */
export async function run(inbox: Inbox, options: QueueOptions): Promise<Running> {
  const open = async (name: string) => {
    const connection = await options.connect()
    try {
      return await openQueue(name, connection, inbox)
    } catch (error) {
      await connection.close().catch(() => undefined)
      throw error
    }
  }
  return await runTopics(inbox, { queue: true, topics: options.queues, open }, options)
}

async function openQueue(name: string, connection: ChannelModel, inbox: Inbox): Promise<Topic> {
  connection.on('error', error => inbox.log('warn', `inbox: the connection for queue ${name}: ${describe(error)}`))
  const channel = await connection.createChannel()
  const queue = new Queue(name, connection, channel, await connection.createChannel())
  await channel.prefetch(2 * windowSize)
  return queue
}

class Queue implements Topic {
  private readonly first = BigInt(Date.now()) * 1_000n // RabbitMQ has no position. A later process's numbers are higher
  private offset = this.first
  private readonly arrivals = new Arrivals<ConsumeMessage>(windowSize)
  private last: ConsumeMessage | undefined // that next returned

  constructor(
    private readonly name: string, private readonly connection: ChannelModel, private readonly channel: Channel,
    private readonly asking: Channel, // another one, as an error closes it
  ) {
    for (const part of [connection, channel, asking]) {
      part.on('error', error => this.arrivals.fail(error))
      part.on('close', () => this.end())
    }
  }

  private end() {
    this.arrivals.fail(new Error(`RabbitMQ has closed the channel of queue ${this.name}, or the queue was deleted`))
  }

  async bounds(): Promise<Bounds> {
    const { messageCount } = await this.asking.checkQueue(this.name)
    return { id: 'queue', first: this.first, unread: messageCount }
  }

  /** Begins when no other consumer is there: what one has that died goes back to its place before it is gone. */
  async seek() {
    const { consumerCount } = await this.asking.checkQueue(this.name)
    if (consumerCount > 0) throw new Error(`queue ${this.name} has ${consumerCount} other consumers: stop them`)
    await this.channel.consume(this.name, m => {
      if (m) this.arrivals.push(m)
      else this.end()
    }, { exclusive: true })
  }

  async next(): Promise<Message[]> {
    const batch = await this.arrivals.take()
    this.last = batch.at(-1) ?? this.last
    return batch.map(m => message(this.name, this.offset++, m))
  }

  async settle() { this.channel.ack(this.last!, true) } // it throws if the channel is closed

  async close() { await this.connection.close() }
}

/** Undoes what the relay does to make a message. */
function message(topic: string, offset: bigint, { content, properties }: ConsumeMessage): Message {
  const m: Message = { topic, partition: 0, offset, key: null, value: content, headers: {} }
  if (properties.messageId) m.headers.id = properties.messageId
  if (properties.type) m.headers.event_type = properties.type
  for (const [name, value] of Object.entries(properties.headers ?? {})) {
    const text = value === null || value === undefined ? '' : String(value)
    if (name === 'x-outbox-key') m.key = Buffer.from(text)
    else if (name === 'x-outbox-tombstone') m.value = null
    else m.headers[name] = text
  }
  return m
}
