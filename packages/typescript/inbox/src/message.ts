import { Permanent, describe } from './errors.js'

/** A message as a broker delivered it. */
export interface Message {
  topic: string
  partition: number
  offset: bigint
  key: Buffer | null
  value: Buffer | null
  headers: Record<string, string>
}

/** What a handler gets. */
export interface InboxEvent<T = unknown> {
  /** The same in every message of the event. */
  id: string
  /** The outbox in which ids that are not uuids are unique. */
  source: string
  type: string
  aggregateType: string
  /** null: the event has no order. */
  key: string | null
  /** null: a tombstone. */
  payload: T | null
  headers: Record<string, string>
  topic: string
  partition: number
  offset: bigint
  /** From 1. */
  attempt: number
  /** It may come after later events of its key. */
  late: boolean
  /** A dead letter that was replayed; late too. */
  replay: boolean
}

/** A message with what the relay's headers or its envelope say. problem: why it can't be handled. */
export interface Read extends Omit<InboxEvent, 'payload' | 'attempt'> {
  message: Message
  body: Buffer | null
  problem?: string
}

const longestId = 2688 // bytes that an entry of the tables' keys holds
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Reports what the function inbox_is_uuid does. */
export const isUuid = (id: string) => uuid.test(id)

/** The first of the headers that is there. */
const first = (headers: Record<string, string>, ...names: string[]) =>
  names.map(name => headers[name]).find(value => value !== undefined) ?? ''

/** Reads the relay's formats, plain, CloudEvents and envelope, and that of Debezium's outbox router. */
export function read(message: Message): Read {
  const { headers, topic, partition, offset } = message
  const r: Read = {
    id: first(headers, 'id', 'ce_id', 'x-event-id'),
    type: first(headers, 'event_type', 'ce_type', 'eventType'),
    aggregateType: first(headers, 'aggregate_type', 'ce_aggregatetype'),
    source: sourceOf(headers['x-outbox-source'] ?? ''),
    late: 'x-outbox-late' in headers, replay: 'x-outbox-replay' in headers,
    key: message.key?.toString() ?? null, headers, topic, partition, offset, message, body: message.value,
  }
  if (!r.id) open(r)
  const isUnfit = (text: string) => Buffer.byteLength(text) > longestId || /[\0\ufffd]/.test(text)
  const unfit = r.id ? [r.id, r.source].find(isUnfit) : undefined
  if (unfit !== undefined) r.problem = `its id or source ${JSON.stringify(unfit.slice(0, 100))} is longer than ` +
    `${longestId} bytes or not text that Postgres can hold`
  if (!r.id || unfit !== undefined) { // its place is what tells it from others
    r.id = `${topic}/${partition}/${offset}`
    r.source = `topic ${topic}`.slice(0, longestId)
  }
  if (isUuid(r.id)) r.source = ''
  return r
}

/** Leaves the timeline out of <system id>/<timeline>/<source>, which changes in a failover. */
function sourceOf(position: string): string {
  const parts = position.split('/')
  return parts.length === 3 ? `${parts[0]}/${parts[2]}` : position
}

/** Takes the payload out of an envelope, if the value is one. */
function open(r: Read) {
  if (r.body?.[0] !== 0x7b) return
  try {
    const envelope = JSON.parse(r.body.toString())
    if (envelope.id === undefined || envelope.payload === undefined) return
    r.id = String(envelope.id)
    r.type ||= String(envelope.type ?? '')
    r.aggregateType ||= String(envelope.aggregate_type ?? '')
    r.body = Buffer.from(JSON.stringify(envelope.payload))
  } catch {
    // It was a guess.
  }
}

/** The event for the handler. It throws Permanent if the payload is not JSON. */
export function decode(r: Read, attempt: number): InboxEvent {
  if (r.problem) throw new Permanent(r.problem)
  const { message: _, body, problem: __, ...event } = r
  if (body === null) return { ...event, attempt, payload: null }
  try {
    return { ...event, attempt, payload: JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) }
  } catch (error) {
    throw new Permanent(`the payload is not JSON: ${describe(error)}`)
  }
}
