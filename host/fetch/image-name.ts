import { SandboxError } from "#core/errors.ts";

/** An image in a registry. */
export interface ImageName {
  /** Where the registry is, `docker.io` when the name does not say. */
  readonly registry: string;
  /** The name without tag and digest, as it was given. */
  readonly repository: string;
  readonly tag: string | undefined;
  readonly digest: string | undefined;
}

const PART = "[a-z0-9]+(?:[._-]+[a-z0-9]+)*";
const HOST = "(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\\[[0-9a-fA-F:.]+\\])(?::[0-9]{1,5})?";
const NAME = new RegExp(
  `^((?:${HOST}/)?${PART}(?:/${PART})*)(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`,
);
const MAX_LENGTH = 512;

/** Parses `[registry/]repository[:tag][@sha256:…]`. Throws `InvalidArgument` for text that is no name of an image. */
export function parseImageName(text: string): ImageName {
  const match = text.length <= MAX_LENGTH ? NAME.exec(text) : null;
  const repository = match?.[1];
  if (repository === undefined) {
    throw new SandboxError("InvalidArgument", `${JSON.stringify(text.slice(0, 200))} does not name an image`, {
      hint: "for example registry.example.org:5000/team/app:v1, or debian:12 for the one of Docker Hub",
    });
  }
  const [first = "", ...rest] = repository.split("/");
  const isHost = rest.length > 0 && (/[.:\]]/.test(first) || first === "localhost");
  return { registry: isHost ? first : "docker.io", repository, tag: match?.[2], digest: match?.[3] };
}

/** The host of the registry that an image is in, without its port. Throws as `parseImageName` does. */
export function hostOfImage(image: string): string {
  return parseImageName(image)
    .registry.replace(/:\d+$/, "")
    .replace(/^\[|\]$/g, "");
}
