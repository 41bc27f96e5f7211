const waitMs = 1_000

/** What a client pushes, to be taken in batches. */
export class Arrivals<T> {
  private readonly items: T[] = []
  private failed: unknown
  private wake = () => {}
  private makeRoom = () => {}

  constructor(private readonly most: number) {}

  push(item: T) {
    this.items.push(item)
    this.wake()
  }

  /** Ends the arrivals: take throws the error. */
  fail(error: unknown) {
    this.failed ??= error
    this.wake()
    this.makeRoom()
  }

  /** Waits while there are as many as take returns at most. */
  async room() {
    if (this.items.length >= this.most && !this.failed) await new Promise<void>(resolve => { this.makeRoom = resolve })
  }

  /** Waits about a second for some, and returns those that are there. */
  async take(): Promise<T[]> {
    if (this.items.length === 0 && !this.failed) {
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, waitMs)
        this.wake = () => { clearTimeout(timer); resolve() }
      })
    }
    if (this.failed) throw this.failed
    const batch = this.items.splice(0, this.most)
    this.makeRoom()
    return batch
  }
}
