import { createHmac } from "node:crypto";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";

/** What of a container is not its definition's own but needs a new container all the same when it changes. */
export interface Circumstances {
  readonly address: string | undefined;
  readonly cgroupParent: string | undefined;
  /** The disk, where the definition limits its use. */
  readonly diskDevice: string | undefined;
  readonly hasEncryptedVolume: boolean;
  /** Ports that the engine itself publishes. */
  readonly published: readonly string[];
}

/**
 * HMAC-SHA-256, in hex, of what a container is made of: short secrets in variables cannot be guessed from it. Left out is what changes
 * without a new container: processor and memory limits, ports, addresses and routes outside of it, schedule, whether it is enabled.
 * A release that hashes other fields replaces every container of every node.
 */
export function definitionHash(key: Buffer, spec: ContainerSpec, around: Circumstances): string {
  const { ioRbps, ioWbps, ioRiops, ioWiops } = spec.limits;
  return hmac(key, {
    name: spec.name,
    execType: spec.execType,
    image: { repository: spec.image.repository, tag: spec.image.tag },
    command: spec.command,
    hostname: spec.hostname,
    user: spec.user,
    privileged: spec.privileged,
    useInit: spec.useInit,
    stopTime: spec.stopTimeSeconds,
    dns: spec.dns,
    addCaps: sorted(spec.capabilities.add),
    dropCaps: sorted(spec.capabilities.drop),
    healthCheck: spec.healthCheck,
    io: { ioRbps, ioWbps, ioRiops, ioWiops },
    ulimits: sorted(spec.ulimits.map(({ type, soft, hard }) => `${type}=${soft}:${hard}`)),
    logging: { ...spec.logging, isKept: spec.saveOutput },
    mounts: sorted(spec.mounts.map(({ kind, source, dest }) => JSON.stringify([dest, kind, source]))),
    variables: sorted(spec.variables.map(({ name, value }) => JSON.stringify([name, value]))),
    ...around,
    published: sorted(around.published),
  });
}

/** The same of the limits that a running container can be given. */
export function limitsHash(key: Buffer, limits: Readonly<Record<string, number>>): string {
  return hmac(key, limits);
}

const hmac = (key: Buffer, value: unknown): string =>
  createHmac("sha256", key).update(canonicalJson(value)).digest("hex");

const sorted = (values: readonly string[]): readonly string[] => values.toSorted();

/** One text for one value: keys in order, what is undefined left out. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}
