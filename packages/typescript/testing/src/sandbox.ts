import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface, type Interface } from 'node:readline'
import { isDeepStrictEqual } from 'node:util'
import type { Expected } from './index.js'

const installed = 'cdc-relay-demo'
const stopping = 30_000

/** A message of the relay. */
export interface Published {
  topic: string
  key: string | null
  headers: Record<string, string>
  /** Decoded from JSON. null: a tombstone. */
  value: any
}

/**
 * Runs cdc-relay-demo sandbox: a Postgres with an outbox, and a relay that hands over its messages, for tests from the
 * commit to the message. The database is empty but for the outbox, the relay's tables and the function emit.
 */
export class Sandbox {
  /** What was published so far. */
  readonly messages: Published[] = []
  private waiting: (() => void)[] = []
  private ended = false

  /** url is of the database. */
  private constructor(readonly url: string, private readonly child: ChildProcess, lines: Interface) {
    lines.on('line', line => {
      const { topic, key, headers, value } = JSON.parse(line)
      this.messages.push({ topic, key, value, headers: Object.fromEntries(headers.map((h: any) => [h.key, h.value])) })
      this.changed()
    })
    lines.on('close', () => {
      this.ended = true
      this.changed()
    })
  }

  /** Starts it. program is its path; by default it is looked for in PATH. */
  static async start(program = installed): Promise<Sandbox> {
    const child = spawn(program, ['sandbox'], { stdio: ['pipe', 'pipe', 'inherit'] })
    child.stdin!.on('error', () => {}) // of a process that has ended
    const lines = createInterface({ input: child.stdout! })
    const first = await new Promise<string>((resolve, reject) => {
      lines.once('line', resolve)
      child.once('error', error => reject(new Error(`${program} cannot be run: see docs/install.md of cdc-relay`, { cause: error })))
      child.once('exit', code => reject(new Error(`${program} ended with code ${code}; standard error tells why`)))
    })
    return new Sandbox(JSON.parse(first).postgres_url, child, lines)
  }

  /** Waits for a message and returns the first that fits. It throws after so many milliseconds. */
  async published(expected: Expected, timeout = 30_000): Promise<Published> {
    const until = Date.now() + timeout
    while (true) {
      const found = this.messages.find(m => m.headers.event_type === expected.type &&
        (expected.key === undefined || m.key === expected.key) &&
        Object.entries(expected.match ?? {}).every(([name, value]) => isDeepStrictEqual(m.value?.[name], value)))
      if (found) return found
      if (this.ended || Date.now() >= until) {
        throw new Error(`no message ${JSON.stringify(expected)} was published` +
          `${this.ended ? ': the relay has ended, and standard error tells why' : ''}; there are ${JSON.stringify(this.messages)}`)
      }
      await this.change(until - Date.now())
    }
  }

  /** Stops relay and Postgres. */
  async close(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return
    const ended = once(this.child, 'exit')
    const late = setTimeout(() => this.child.kill('SIGKILL'), stopping)
    this.child.stdin!.end()
    await ended
    clearTimeout(late)
  }

  private change(timeout: number): Promise<void> {
    return new Promise(resolve => {
      const timer = setTimeout(resolve, timeout)
      this.waiting.push(() => {
        clearTimeout(timer)
        resolve()
      })
    })
  }

  private changed(): void {
    const waiting = this.waiting
    this.waiting = []
    for (const wake of waiting) wake()
  }
}
