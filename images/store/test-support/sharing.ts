import { randomBytes } from "node:crypto";
import { systemClock } from "#core/clock.ts";
import type { LayerStore } from "../../store.ts";
import type { ObjectStore } from "../object-store.ts";
import { StorePins } from "../pins.ts";
import { SharedLayers } from "../shared-layers.ts";

/** The layers of a node of its own, as others share them. */
export function sharedLayers(layers: LayerStore, objects: ObjectStore): SharedLayers {
  const node = randomBytes(8).toString("hex");
  return new SharedLayers(layers, objects, new StorePins({ objects, node, clock: systemClock }));
}
