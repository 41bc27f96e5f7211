// Reads Redis Streams with ioredis. A stream is read in order by one process at a time, from the position in the
// database. There is no consumer group, because its members would break the order of keys, and nothing is deleted: trim
// streams by age or length.
import type { Redis } from 'ioredis'
import { describe } from './errors.js'
import type { Inbox } from './inbox.js'
import type { Message } from './message.js'
import { runTopics, windowSize, type Bounds, type ReadOptions, type Running, type Topic } from './topics.js'

export type { Running }

export interface StreamOptions extends ReadOptions {
  /** Duplicated for each stream, as reading blocks. The caller closes it. */
  redis: Redis
  streams: string[]
}

/** Reads the streams and handles events until stop. */
export async function run(inbox: Inbox, options: StreamOptions): Promise<Running> {
  const open = async (name: string) => new Stream(name, options.redis.duplicate({ lazyConnect: true }), inbox)
  return await runTopics(inbox, { queue: false, topics: options.streams, open }, options)
}

const waitMs = 500

/** Fields of the relay beside the headers, and the prefix of headers that have their names. */
const own = ['key', 'payload', 'x-outbox-tombstone']
const renamed = 'header:'

class Stream implements Topic {
  private at = 0n

  constructor(private readonly name: string, private readonly redis: Redis, inbox: Inbox) {
    redis.on('error', error => inbox.log('warn', `inbox: the connection for stream ${name}: ${describe(error)}`))
  }

  async bounds(next: bigint): Promise<Bounds> {
    let info
    try {
      info = pairs(await this.redis.xinfo('STREAM', this.name) as unknown[])
    } catch (error) {
      if (!describe(error).includes('no such key')) throw error
      // Ids are times, so those of a stream that is created again lie behind.
      return { id: '', first: next, unread: 0, lost: next > 0n ? `stream ${this.name} was deleted: whether all of it was read ` +
        'is unknown' : undefined }
    }
    const last = offsetOf(String(info.get('last-generated-id')))
    const entry = info.get('first-entry') as [string] | null
    const first = entry ? offsetOf(entry[0]) : last + 1n
    const length = Number(info.get('length'))
    const unread = next > last ? 0 : next <= first ? length : undefined
    const lost = next > first && next <= last || next < first && next > 0n ? await this.lost(next, info) : undefined
    return { id: '', first, end: last + 1n, unread, lost }
  }

  /** What is trimmed goes from the front: while the last one that was read is there, nothing behind it was. */
  private async lost(next: bigint, info: Map<string, unknown>): Promise<string | undefined> {
    const deleted = info.get('max-deleted-entry-id') // neither is known before Redis 7
    if (deleted === '0-0' && info.get('entries-added') === info.get('length')) return undefined
    const there = await this.redis.xrange(this.name, idOf(next - 1n), idOf(next - 1n))
    if (there.length > 0 && (typeof deleted !== 'string' || offsetOf(deleted) < next)) return undefined
    return `stream ${this.name} may have lost entries behind ${idOf(next - 1n)} before they were read: it was trimmed, or ` +
      'entries were deleted. Their effects would be missing'
  }

  async seek(next: bigint) { this.at = next }

  async next(): Promise<Message[]> {
    const after = idOf(this.at > 0n ? this.at - 1n : 0n)
    const read = await this.redis.xreadBuffer('COUNT', windowSize, 'BLOCK', waitMs, 'STREAMS', this.name, after)
    const entries = (read as unknown as [Buffer, [Buffer, Buffer[]][]][] | null)?.[0]?.[1] ?? []
    const messages = entries.map(([id, fields]) => message(this.name, offsetOf(id.toString()), fields))
    this.at = messages.at(-1) ? messages.at(-1)!.offset + 1n : this.at
    return messages
  }

  async settle() {}

  async close() { this.redis.disconnect() }
}

/** Undoes what the relay does to make an entry. */
function message(topic: string, offset: bigint, fields: Buffer[]): Message {
  const m: Message = { topic, partition: 0, offset, key: null, value: null, headers: {} }
  for (let n = 0; n + 1 < fields.length; n += 2) {
    const name = fields[n]!.toString()
    const value = fields[n + 1]!
    if (name === 'key') m.key = value
    else if (name === 'payload') m.value = value
    else if (!own.includes(name)) m.headers[name.startsWith(renamed) ? name.slice(renamed.length) : name] = value.toString()
  }
  return m
}

const pairs = (list: unknown[]) => new Map(Array.from({ length: list.length / 2 }, (_, n) => [list[2 * n] as string, list[2 * n + 1]]))

const seqBits = 22n // of an offset, for the second part of an id; in the relay's journal, too

function offsetOf(id: string): bigint {
  const [ms = '', seq = '0'] = id.split('-')
  const offset = (BigInt(ms) << seqBits) | BigInt(seq)
  if (BigInt(seq) >> seqBits > 0n || offset >> 63n > 0n) throw new Error(`the id ${id} does not fit into an offset`)
  return offset
}

const idOf = (offset: bigint) => `${offset >> seqBits}-${offset & ((1n << seqBits) - 1n)}`
