import { exportJWK, generateKeyPair, type CryptoKey } from "jose";
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { NEW_IDENTITY } from "../../src/controller/nodes/identity.ts";
import { openSqliteStore } from "../../src/controller/store/sqlite.ts";
import { storeIn } from "../../src/controller/stores.ts";
import { NodeKeys, thumbprintsOf } from "../../src/protocol/values/keys.ts";

/** A node that a controller knows: enough to say hello. */
export interface FleetNode {
  readonly uid: string;
  readonly kid: string;
  readonly privateKey: CryptoKey;
}

/** Registers nodes directly in the database of a controller that is not running, as its own registration would store them. */
export async function addNodes(database: string, count: number): Promise<readonly FleetNode[]> {
  const store = storeIn(openSqliteStore(database));
  const domain = (await store.meta.get("domain")) ?? "";
  const org = (await store.meta.get("org")) ?? "";
  const fleet: FleetNode[] = [];
  try {
    for (let i = 0; i < count; i += 1) {
      const auth = await generateKeyPair("Ed25519");
      const overlay = generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey.export({ format: "jwk" });
      const wireguard = generateKeyPairSync("x25519").publicKey.export({ format: "jwk" });
      const keys = NodeKeys.parse({ auth: await exportJWK(auth.publicKey), overlay, wireguard });
      const thumbprints = await thumbprintsOf(keys);
      const uid = randomUUID();
      const name = `node-${i}`;
      await store.nodes.add({
        uid,
        name,
        fqdn: `${name}.${domain}`,
        domain,
        org,
        type: "Node",
        keys,
        thumbprints,
        device: { vendor: "Bench", model: "Scripted", mac: "02:00:00:00:00:01" },
        createdAt: Math.floor(Date.now() / 1000),
        trail: NEW_IDENTITY,
      });
      fleet.push({ uid, kid: thumbprints.auth, privateKey: auth.privateKey });
    }
  } finally {
    await store.close();
  }
  return fleet;
}
