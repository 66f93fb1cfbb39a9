import { createHmac } from "node:crypto";
import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";

/** Inputs outside the definition whose change requires a new container. */
export interface Circumstances {
  readonly address: string | undefined;
  readonly cgroupParent: string | undefined;
  /** The disk, if the definition limits its use. */
  readonly diskDevice: string | undefined;
  readonly hasEncryptedVolume: boolean;
  /** Ports that the engine publishes. */
  readonly published: readonly string[];
}

/**
 * Returns an HMAC-SHA-256, in hex, of everything that requires a new container; keyed, so that short secrets in variables cannot be
 * guessed. Excludes processor and memory limits, ports, addresses and routes outside the container, schedule, and `enabled`. A release that
 * hashes other fields replaces every container of every node.
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

/** Hashes the limits that can be changed on a running container. */
export function limitsHash(key: Buffer, limits: Readonly<Record<string, number>>): string {
  return hmac(key, limits);
}

const hmac = (key: Buffer, value: unknown): string =>
  createHmac("sha256", key).update(canonicalJson(value)).digest("hex");

const sorted = (values: readonly string[]): readonly string[] => values.toSorted();

/** Serializes a value with sorted keys and without undefined members. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}
