import { type Static, Type } from "typebox";
import { closed, oneOf } from "./values.ts";

/** Who a token belongs to. `admin` acts in every project, `member` in its own. */
export const WhoAmI = closed({
  principal: Type.String(),
  project: Type.String(),
  role: oneOf(["admin", "member"]),
});
export type WhoAmI = Static<typeof WhoAmI>;

/** The answer to GET /healthz: the server runs. */
export const Health = closed({ status: oneOf(["ok"]), version: Type.String() });
export type Health = Static<typeof Health>;
