import { join } from "node:path";
import type { EncryptedVolume } from "../../../host/machine/encrypted-volume.ts";
import { CONTENT } from "../../../host/machine/encrypted-volume.ts";
import type { VolumeSpec } from "../../../protocol/sections/exec/config.ts";

/** The agent's own directories in the data store; names of volumes cannot begin with a dot. */
const VOLUMES = "volumes";
export const QUARANTINE = [VOLUMES, ".quarantine"] as const;
const IMAGES = [VOLUMES, ".encrypted"] as const;
export const MOUNTS = [VOLUMES, ".mounts"] as const;

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
const MAX_LOCATION = 1024;
const MAX_DEPTH = 16;

/** Properties of a volume that cannot change after creation. */
export interface VolumeShape {
  readonly encrypted: boolean;
  /** Path components below the data store. */
  readonly parts: readonly string[];
}

/** Returns a volume's place, or why its name or location is invalid. */
export function shapeOf(
  spec: Pick<VolumeSpec, "name" | "encrypted" | "location">,
): VolumeShape | { readonly wrong: string } {
  if (!NAME.test(spec.name)) return { wrong: "the name is not one of a volume" };
  if (spec.location === undefined) {
    return {
      encrypted: spec.encrypted,
      parts: spec.encrypted ? [...IMAGES, `${spec.name}.img`] : [VOLUMES, spec.name],
    };
  }
  const parts = spec.location.split("/").filter((part) => part !== "" && part !== ".");
  const isBad = parts.some(
    (part) => part === ".." || part.startsWith(".") || /\p{Cc}/u.test(part) || Buffer.byteLength(part) > 200,
  );
  if (isBad || parts.length === 0 || parts.length > MAX_DEPTH || spec.location.length > MAX_LOCATION) {
    return { wrong: "the location is not a directory in the data store" };
  }
  if (parts[0] === VOLUMES) return { wrong: `the location ${VOLUMES} is where volumes without one are` };
  return { encrypted: spec.encrypted, parts: spec.encrypted ? [...parts, `${spec.name}.img`] : parts };
}

/** Reports whether one path contains or equals the other. */
export function isOverlap(a: VolumeShape, b: VolumeShape): boolean {
  const [short, long] = a.parts.length <= b.parts.length ? [a.parts, b.parts] : [b.parts, a.parts];
  return short.every((part, index) => part === long[index]);
}

/** Returns the engine's name of a volume. */
export const engineVolumeName = (owner: string, name: string): string => `holdfast-${owner.slice(0, 8)}-${name}`;

/** Returns the directory that the engine binds; an encrypted volume's exists only while it is unlocked. */
export function contentPath(dataStore: string, name: string, shape: VolumeShape): string {
  return shape.encrypted ? join(dataStore, ...MOUNTS, name, CONTENT) : join(dataStore, ...shape.parts);
}

/** Returns an encrypted volume in its driver's form. */
export function encryptedVolume(
  { dataStore, owner }: { readonly dataStore: string; readonly owner: string },
  name: string,
  shape: VolumeShape,
  sizeBytes: number,
): EncryptedVolume {
  return {
    mapping: engineVolumeName(owner, name),
    image: join(dataStore, ...shape.parts),
    mountPoint: join(dataStore, ...MOUNTS, name),
    sizeBytes,
  };
}

/** An entry of the quarantine: `<name>@<Unix ms when it ends>@<Unix ms when it began>`. */
export interface Quarantined {
  readonly entry: string;
  readonly name: string;
  readonly endsAt: number;
  readonly beganAt: number;
}

export const quarantineEntry = (name: string, beganAt: number, endsAt: number): string =>
  `${name}@${endsAt}@${beganAt}`;

/** Parses an entry's name; undefined if it is not ours. */
export function parseQuarantined(entry: string): Quarantined | undefined {
  const [, name = "", endsAt, beganAt] = /^([^@]+)@(\d{1,16})@(\d{1,16})$/.exec(entry) ?? [];
  return NAME.test(name) ? { entry, name, endsAt: Number(endsAt), beganAt: Number(beganAt) } : undefined;
}
