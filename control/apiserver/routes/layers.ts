import type { Handlers, Services } from "../handler.ts";

/** The call about the data of layers. */
export function layerHandlers({ catalogue, maker }: Services): Pick<Handlers, "artifactLayers"> {
  return {
    async artifactLayers({ principal: { project }, params }) {
      const { layers } = await catalogue.resolve(project, params.name ?? "");
      const reports = await maker.layers(layers);
      return {
        layers: reports.map(({ layer, isMounted, ...rest }) => ({ digest: layer, mounted: isMounted, ...rest })),
      };
    },
  };
}
