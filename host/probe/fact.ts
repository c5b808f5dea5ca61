/** One thing a host can, cannot, or can only partly do: a line of `dsec doctor`. */
export interface HostFact {
  readonly name: string;
  /** `partial`: usable, with the loss that `detail` names. */
  readonly state: "works" | "partial" | "missing";
  /** What a user loses without it. */
  readonly why: string;
  /** How to get it; empty when it works. */
  readonly how: string;
  /** What was found. */
  readonly detail: string;
}

/** What one look at the host found. */
export interface Finding {
  readonly state: HostFact["state"];
  readonly detail: string;
}

/** A thing to look at. `look` may throw: that is a finding too. */
export interface Look {
  readonly name: string;
  readonly why: string;
  readonly how: string;
  look(): Finding | Promise<Finding>;
}

/** It works; `detail` says how. */
export function works(detail: string): Finding {
  return { state: "works", detail };
}
/** It works with a loss; `detail` names it. */
export function partial(detail: string): Finding {
  return { state: "partial", detail };
}
/** It does not work; `detail` says what was seen. */
export function missing(detail: string): Finding {
  return { state: "missing", detail };
}
