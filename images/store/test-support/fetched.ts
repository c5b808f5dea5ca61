import type { ObjectStore } from "../object-store.ts";

/** The same store without places where objects could be read, as one is that lies at the other end of a network. */
export function fetched(store: ObjectStore): ObjectStore {
  return {
    name: store.name,
    get: (...words) => store.get(...words),
    put: (...words) => store.put(...words),
    head: (...words) => store.head(...words),
    list: (...words) => store.list(...words),
    remove: (...words) => store.remove(...words),
    path: () => undefined,
    settlingMs: (...words) => store.settlingMs(...words),
    probe: (...words) => store.probe(...words),
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}
