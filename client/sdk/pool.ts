import { DsecError } from "./errors.ts";

/**
 * Does something with every item, at most `concurrency` at a time, and yields what comes of each as it is done. An item that is
 * slow keeps only its own place. `act` never rejects. New ones begin as results are taken: a reader that is slow holds them back,
 * and one that leaves begins no more.
 */
export async function* pooled<Item, Result>(
  items: Iterable<Item>,
  concurrency: number,
  act: (item: Item) => Promise<Result>,
): AsyncGenerator<Result, void, undefined> {
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    throw new DsecError("InvalidArgument", `concurrency ${concurrency} is not a whole number from 1 on`);
  }
  const rest = items[Symbol.iterator]();
  const done: Result[] = [];
  let running = 0;
  let wake = Promise.withResolvers<void>();
  const finish = (result: Result) => {
    running -= 1;
    done.push(result);
    wake.resolve();
  };
  for (;;) {
    while (running + done.length < concurrency) {
      const next = rest.next();
      if (next.done === true) break;
      running += 1;
      void act(next.value).then(finish);
    }
    if (running + done.length === 0) return;
    await wake.promise;
    wake = Promise.withResolvers<void>();
    for (let result = done.shift(); result !== undefined; result = done.shift()) yield result;
  }
}
