const targetMs = 20 // of a transaction with several events
const waitAfterSlow = 100 // events, until two are tried together again
const waitAtMost = 1_000

/** Decides how many events go into one transaction: as many as handlers manage in the target's time. */
export class Pace {
  private size = 8
  private alone = 0
  private failures = 0

  constructor(private readonly most: number) { this.size = Math.min(this.size, most) }

  /** How many the next transaction is for. */
  next(): number {
    if (this.most < 2) return 1
    if (this.alone === 0) return this.size
    this.alone--
    return 1
  }

  /** Takes in that so many events were committed together. */
  went(events: number, tookMs: number) {
    this.failures = 0
    if (tookMs <= targetMs) {
      if (events >= this.size) this.size = Math.min(this.most, this.size * 2)
      return
    }
    this.size = Math.max(2, Math.floor(events * targetMs / tookMs))
    if (2 * tookMs > events * targetMs) this.alone = waitAfterSlow
  }

  /** Takes in that so many events could not be committed together: they go by themselves, and others for a while. */
  failed(events: number) {
    this.alone = Math.min(waitAtMost, events * 2 ** Math.min(this.failures, 10))
    this.failures++
    this.size = Math.max(2, this.size >> 1)
  }
}
