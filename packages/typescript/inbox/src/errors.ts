/** The event can never be handled: it becomes a dead letter at once. */
export class Permanent extends Error {
  override name = 'Permanent'
}

/** What the handler needs is away. The event is tried again, and no attempt is counted. */
export class Outage extends Error {
  override name = 'Outage'
}

/** A failed attempt whose next one comes after so many milliseconds. */
export class RetryAfter extends Error {
  override name = 'RetryAfter'
  readonly delayMs: number

  constructor(delayMs: number, message?: string, options?: ErrorOptions) {
    super(message, options)
    this.delayMs = delayMs
  }
}

/** The inbox's own statements failed, so the event is not decided. Hand the message in again. */
export class Unavailable extends Error {
  override name = 'Unavailable'
}

/** The database has less than this process committed: it was restored. Read again from the stored offsets. */
export class SetBack extends Error {
  override name = 'SetBack'
}

/** The text of whatever a handler has thrown. */
export function describe(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message || thrown.name
  return `the handler threw ${typeof thrown === 'string' ? thrown : `a value of type ${typeof thrown}`}`
}
