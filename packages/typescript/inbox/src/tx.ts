import type { PoolClient } from 'pg'
import { inspect } from './statement.js'

/** The transaction of an event, as a client of node-postgres. The inbox begins and ends it. */
export type Tx = Pick<PoolClient, 'query' | 'escapeIdentifier' | 'escapeLiteral'>

/** What the inbox sees of a handler's use of its transaction. */
export interface Guard {
  client: Tx
  /** Throws if the handler tried to end the transaction, also if it caught the error. */
  check(): void
  /** Reports whether the session's settings may have changed, so that it must not be used again. */
  changed(): boolean
  /** Reports whether settings may have changed, be it for this transaction only, so that no other event may be in it. */
  altered(): boolean
  /** Refuses all further statements: the handler may still run. */
  close(): void
}

/** Wraps a client for a handler. */
export function guard(client: PoolClient): Guard {
  let refused: Error | undefined
  let changed = false
  let altered = false
  let closed = false
  const query = (...args: unknown[]) => {
    if (closed) throw new Error('the transaction of this event has ended: await every statement in the handler')
    const first = args[0] as string | { text?: string; cursor?: { text?: string } }
    const text = typeof first === 'string' ? first : first?.text ?? first?.cursor?.text ?? ''
    const effect = inspect(text)
    if (effect === 'end') {
      refused = new Error(`the handler ran ${JSON.stringify(text.slice(0, 80))}: the inbox begins and ends the transaction`)
      throw refused
    }
    changed ||= effect === 'setting'
    altered ||= effect !== 'plain'
    return Reflect.apply(client.query, client, args)
  }
  const proxy = new Proxy(client, {
    get(target, name) {
      if (name === 'query') return query
      if (name === 'release' || name === 'end' || name === 'connect') {
        return () => { throw new Error(`the handler called ${name}: the inbox gives the connection back`) }
      }
      const value = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  return {
    client: proxy,
    check() { if (refused) throw refused },
    changed: () => changed,
    altered: () => altered,
    close() { closed = true },
  }
}
