import { createHash } from "node:crypto";
import type { MeshRecord } from "../../../src/controller/channel/documents/mesh-node.ts";

/** The UID of a fictitious node: the same for the same name, in the order of its number. */
export const uidOf = (number: number): string => `${number.toString(16).padStart(8, "0")}-0000-4000-8000-000000000000`;

/** A stored node of the domain `net.example`; active and without sections by default. */
export function meshRecord(number: number, change: Partial<MeshRecord> = {}): MeshRecord {
  const name = change.name ?? `n${number}`;
  return {
    uid: uidOf(number),
    name,
    fqdn: `${name}.net.example`,
    domain: "net.example",
    type: "Node",
    state: "ACTIVE",
    cluster: undefined,
    key: createHash("sha256").update(name).digest("base64url"),
    gateway: undefined,
    connectors: undefined,
    ...change,
  };
}

/** A gateway section with a server. */
export const server = (type: string, more: object = {}) => ({
  enabled: true,
  type,
  host: "gw.example.net",
  port: 8443,
  ...more,
});

/** A legacy section of connectors: `[node, service]` or `[node, service, more]`. */
export const connectors = (...wanted: readonly (readonly [node: string, service: string, more?: object])[]) => ({
  connectors: wanted.map(([node, service, more], at) =>
    Object.assign({ node, service, protocol: "tcp", port: 10_000 + at }, more),
  ),
});
