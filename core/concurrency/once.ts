/** Something that is made when the first asks for it: once, however many wait, and anew after it failed. */
export class Once<T> {
  readonly #make: () => Promise<T>;
  #made: Promise<T> | undefined;

  constructor(make: () => Promise<T>) {
    this.#make = make;
  }

  /** Whether somebody has asked, and it did not fail. */
  get isAsked(): boolean {
    return this.#made !== undefined;
  }

  /** Rejects as making it does. */
  get(): Promise<T> {
    if (this.#made !== undefined) return this.#made;
    const made = this.#make().catch((error: unknown) => {
      if (this.#made === made) this.#made = undefined;
      throw error;
    });
    this.#made = made;
    return made;
  }

  /** Gives up what was made, when it is; undefined: there is nothing. */
  async release(): Promise<T | undefined> {
    const made = this.#made;
    this.#made = undefined;
    return await made?.catch(() => undefined);
  }
}
