/** Who uses something at this moment. */
export class UseCount {
  readonly #left: () => void;
  #users = 0;

  /** `left` is told whenever one leaves. */
  constructor(left: () => void) {
    this.#left = left;
  }

  get any(): boolean {
    return this.#users > 0;
  }

  /** One more, until it is disposed. */
  enter(): Disposable {
    this.#users += 1;
    let done = false;
    return {
      [Symbol.dispose]: () => {
        if (done) return;
        done = true;
        this.#users -= 1;
        this.#left();
      },
    };
  }
}
