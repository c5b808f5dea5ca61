import { type Static, Type } from "typebox";
import { closed, oneOf } from "./values.ts";

/** Where the data of a layer is. */
const LAYER_STATES = ["complete", "in-place", "lazy", "absent"] as const;

/** One layer of an artifact, as the node has it. */
export const LayerView = closed({
  digest: Type.String(),
  state: oneOf(LAYER_STATES),
  mounted: Type.Boolean(),
  sizeBytes: Type.Number({ description: "Of its data; 0 while absent." }),
  presentBytes: Type.Number({ description: "Of it, what need not be fetched any more." }),
  hits: Type.Number({ description: "Reads of lazy data that did not wait, since its filler was started." }),
  misses: Type.Number({ description: "Reads that waited for the store." }),
});
export type LayerView = Static<typeof LayerView>;

/** The layers of an artifact, lowest first. */
export const LayerList = closed({ layers: Type.Array(LayerView) });
export type LayerList = Static<typeof LayerList>;
