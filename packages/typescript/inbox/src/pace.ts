const targetMs = 20 // of a transaction with several events
const waitAfterSlow = 100 // events, until two are tried together again
const waitAtMost = 1_000

/** Decides how many events go into one transaction: as many as handlers manage in the target's time. */
export class Pace {
  private each = targetMs / 8 // what one event takes, smoothed
  private alone = 0
  private failures = 0

  constructor(private readonly most: number) {}

  /** How many the next transaction is for. */
  next(): number {
    if (this.most < 2) return 1
    if (this.alone === 0) return Math.min(this.most, Math.max(2, Math.floor(targetMs / this.each)))
    this.alone--
    return 1
  }

  /** Takes in that so many events were committed together. A pause of the machine counts little. */
  went(events: number, tookMs: number) {
    this.failures = 0
    this.each += (Math.min(tookMs / events, this.each * 4) - this.each) / 4
    if (this.each * 2 > targetMs) this.alone = waitAfterSlow
  }

  /** Takes in that so many events could not be committed together: they go by themselves, and others for a while. */
  failed(events: number) {
    this.alone = Math.min(waitAtMost, events * 2 ** Math.min(this.failures, 10))
    this.failures++
  }
}
