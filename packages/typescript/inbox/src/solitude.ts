/** Lets many run together, or one alone. */
export class Solitude {
  private running = 0
  private alone = false
  private waiting: { alone: boolean; begin: () => void }[] = []

  async run<T>(alone: boolean, work: () => Promise<T>): Promise<T> {
    if (this.waiting.length > 0 || !this.free(alone)) {
      await new Promise<void>(begin => this.waiting.push({ alone, begin }))
    } else {
      this.enter(alone)
    }
    try {
      return await work()
    } finally {
      this.running--
      this.alone = false
      while (this.waiting[0] && this.free(this.waiting[0].alone)) {
        const next = this.waiting.shift()!
        this.enter(next.alone)
        next.begin()
      }
    }
  }

  private free(alone: boolean) { return alone ? this.running === 0 : !this.alone }

  private enter(alone: boolean) {
    this.running++
    this.alone = alone
  }
}

/** Bounds how many run at once, first come first served. */
export class Slots {
  private waiting: (() => void)[] = []

  constructor(private free: number) {}

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free--
    else await new Promise<void>(begin => this.waiting.push(begin))
    try {
      return await work()
    } finally {
      const next = this.waiting.shift()
      if (next) next()
      else this.free++
    }
  }
}
