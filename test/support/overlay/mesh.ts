import { generateKeyPairSync } from "node:crypto";
import type { DomainPeer } from "../../../src/protocol/sections/gateway/domain-items.ts";
import {
  OverlayIdentity,
  type MeshState,
  type OverlayMesh,
  type PathState,
} from "../../../src/protocol/overlay/mesh.ts";

/** The uid of the node under test. */
export const SELF = "01890000-0000-7000-8000-000000000001";

/** The uid of the nth node of a test. */
export function uidOf(n: number): string {
  return `01890000-0000-7000-8000-0000000000${String(n).padStart(2, "0")}`;
}

/** A thumbprint for a letter. */
export function keyOf(letter: string): string {
  return letter.repeat(42).concat("A");
}

/** A peer named `name`; `gw…` is a gateway to dial. */
export function aPeer(n: number, name: string, more: Partial<DomainPeer> = {}): DomainPeer {
  const isGateway = name.startsWith("gw");
  return {
    uid: uidOf(n),
    name,
    fqdn: `${name}.example.org`,
    type: "Node",
    key: keyOf(String.fromCodePoint(96 + n)),
    ...(isGateway ? { gateway: { type: "public", host: `${name}.example.net`, port: 8443 } } : {}),
    ...more,
  };
}

/** One gateway with its built-in path, in the form of the table. */
export function aMesh(more: Partial<OverlayMesh> = {}): OverlayMesh {
  return {
    self: SELF,
    peers: [{ uid: uidOf(2), fqdn: "gw1.example.org", key: keyOf("b") }],
    paths: [{ gateway: uidOf(2), id: "", host: "gw1.example.net", port: 8443, isDefault: true }],
    grants: [],
    routes: [],
    ...more,
  };
}

export function aPathState(more: Partial<PathState> = {}): PathState {
  return {
    gateway: uidOf(2),
    id: "",
    state: "up",
    since: 1000,
    carries: true,
    remote: { ip: "192.0.2.1", port: 8443 },
    rttMs: 12,
    loss: 0,
    attempts: 1,
    bytesIn: 10,
    bytesOut: 20,
    ...more,
  };
}

/** An overlay's state of the mesh above. */
export function aMeshState(more: Partial<MeshState> = {}): MeshState {
  return {
    paths: [aPathState()],
    clients: [],
    sessions: [],
    server: { state: "off", refused: {}, relays: { active: 0, total: 0, bytes: 0 } },
    ...more,
  };
}

/** A new key for each test. */
export function anIdentity(): OverlayIdentity {
  return OverlayIdentity.parse({ uid: SELF, key: KEY });
}

const KEY = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" });
