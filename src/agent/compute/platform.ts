/** Architectures as the engine names its machine's, and as images name theirs. */
const ARCHITECTURES: ReadonlyMap<string, string> = new Map([
  ["x86_64", "amd64"],
  ["aarch64", "arm64"],
  ["armv7l", "arm"],
  ["i686", "386"],
]);

/** Images of these run on a machine of the other architecture without emulation. */
const COMPATIBLE: ReadonlyMap<string, string> = new Map([
  ["linux/386", "linux/amd64"],
  ["linux/arm", "linux/arm64"],
]);

/** The platform of images for a machine, `linux/arm64`; empty for an architecture that is not known, which leaves it to the engine. */
export function platformOf(architecture: string | undefined): string {
  const plain = architecture === undefined ? undefined : (ARCHITECTURES.get(architecture) ?? known(architecture));
  return plain === undefined ? "" : `linux/${plain}`;
}

/** Reports whether a machine runs images of a platform; one that is not known is left to the engine. */
export function runsOn(image: string | undefined, machine: string): boolean {
  return image === undefined || machine === "" || image === machine || COMPATIBLE.get(image) === machine;
}

/** Podman names its machine's as images do. */
function known(architecture: string): string | undefined {
  return [...ARCHITECTURES.values()].find((name) => name === architecture);
}
