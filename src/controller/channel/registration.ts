import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { License, RegisterClaims } from "../../protocol/documents/claims.ts";
import { SESSION_PATH } from "../../protocol/channel/envelope.ts";
import { peekClaims, signJws, verifyJws } from "../../protocol/channel/jws.ts";
import { thumbprintsOf, type NodeThumbprints } from "../../protocol/values/keys.ts";
import type { RegistrationAnswer } from "../../protocol/channel/registration.ts";
import type { KeyedQueue } from "../../lib/async/keyed-queue.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import { NEW_IDENTITY } from "../nodes/identity.ts";
import { checkClaims, checkKeys, judgeRegistration, type RegistrationVerdict } from "../nodes/registration-rules.ts";
import type { Transact } from "../store/transact.ts";
import type { ClusterStore } from "../clusters/store.ts";
import type { LicenseStore } from "../nodes/license-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TombstoneStore } from "../nodes/tombstone-store.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting, AwaitingParts } from "./awaiting.ts";
import type { DocumentParts, Documents } from "./documents/documents.ts";

/** Stores of an open transaction that registers a node. */
export interface RegistrationParts extends EventParts, AwaitingParts, DocumentParts {
  readonly clusters: Pick<ClusterStore, "get">;
  readonly licenses: Pick<LicenseStore, "consume">;
  readonly nodes: NodeStore;
  readonly tombstones: Pick<TombstoneStore, "get">;
}

export interface RegistrationDeps {
  readonly store: Transact<RegistrationParts>;
  readonly events: Pick<EventLog, "record">;
  readonly documents: Pick<Documents, "refresh">;
  readonly announcer: Pick<Announcer, "changed">;
  readonly awaiting: Pick<Awaiting, "expect">;
  /** Work on one node at a time. */
  readonly turns: Pick<KeyedQueue, "run">;
  readonly keys: ControlKeys;
  readonly clock: Clock;
  readonly origin: string;
}

const REFUSALS: Readonly<Record<(RegistrationVerdict & { kind: "refused" })["code"], string>> = {
  "license-reused": "the license registered a node with other keys",
  "key-in-use": "another node has one of these keys",
  "license-expired": "the license has expired, or its node was deleted",
  "name-taken": "the name was taken after the license was issued",
};

/**
 * Registers the node of a `register` JWS, in one transaction.
 * @throws {InputError} `bad-signature` for invalid or inconsistent input, otherwise the code of the refusal
 */
export async function registerNode(deps: RegistrationDeps, jws: string, address: string): Promise<RegistrationAnswer> {
  const { store, turns, keys, clock, origin } = deps;
  const { claims, thumbprints } = await verifyRegister(jws);
  const license = await verifyJws("holdfast-license+jwt", claims.license, keys.accepted);
  checkClaims(license, claims, origin, thumbprints.auth);
  checkKeys(claims.keys);

  const nowSeconds = clock.now() / 1000;
  const { verdict, changed } = await turns.run(license.jti, () =>
    store.transact(async (tx) => {
      const judged = judgeRegistration(license, thumbprints, await factsOf(tx, license, thumbprints), nowSeconds);
      if (judged.kind === "refused") await reportReuse(tx, deps, judged.code, license, thumbprints, address);
      const changes = judged.kind === "new" ? await enter(tx, deps, license, claims, thumbprints, nowSeconds) : [];
      return { verdict: judged, changed: changes };
    }),
  );
  for (const [node, names] of changed) deps.announcer.changed(node, names);
  if (verdict.kind === "refused") throw new InputError(verdict.code, REFUSALS[verdict.code]);

  const { jti: uid, name, domain, org, type } = license;
  const session = `${origin.replace(/^http/, "ws")}${SESSION_PATH}`;
  const node = { uid, name, fqdn: `${name}.${domain}`, domain, org, type, session };
  const answer = { iss: origin, aud: uid, nonce: claims.nonce, iat: Math.floor(nowSeconds), node, cnf: thumbprints };
  const registered = await signJws("holdfast-registered+jwt", answer, keys.signing);
  return { registered, keys: [...keys.envelopes] };
}

async function verifyRegister(
  jws: string,
): Promise<{ readonly claims: RegisterClaims; readonly thumbprints: NodeThumbprints }> {
  const { keys } = peekClaims("holdfast-register+jwt", jws);
  const thumbprints = await thumbprintsOf(keys);
  const claims = await verifyJws("holdfast-register+jwt", jws, new Map([[thumbprints.auth, keys.auth]]));
  return { claims, thumbprints };
}

async function factsOf(tx: RegistrationParts, license: License, thumbprints: NodeThumbprints) {
  const fqdn = `${license.name}.${license.domain}`;
  const namesake = await tx.nodes.byFqdn(fqdn);
  const isNamesake = namesake !== undefined && namesake.uid !== license.jti;
  return {
    registered: (await tx.nodes.credentials(license.jti))?.thumbprints,
    isDeleted: (await tx.tombstones.get(license.jti)) !== undefined,
    keyOwner: await tx.nodes.keyOwner(thumbprints, license.jti),
    isNameTaken: isNamesake || (await tx.clusters.get(fqdn)) !== undefined,
  };
}

/** Stores a new node and returns the changed documents of all nodes. */
async function enter(
  tx: RegistrationParts,
  { events, documents, awaiting }: RegistrationDeps,
  license: License,
  claims: RegisterClaims,
  thumbprints: NodeThumbprints,
  nowSeconds: number,
): ReturnType<Documents["refresh"]> {
  const { jti: uid, name, domain, org, type } = license;
  const fqdn = `${name}.${domain}`;
  const orderID = await tx.licenses.consume(uid, nowSeconds);
  await tx.nodes.add({
    uid,
    name,
    fqdn,
    domain,
    org,
    type,
    thumbprints,
    keys: claims.keys,
    device: claims.device,
    createdAt: Math.floor(nowSeconds),
    trail: NEW_IDENTITY,
    orderID,
  });
  await awaiting.expect(tx, uid, "registration");
  await events.record(
    tx,
    { uid, name, fqdn },
    { eventType: "Configuration Change", level: "INFO", message: "Node registered", details: { type } },
  );
  return documents.refresh(tx, [uid]);
}

/** Reports the misuse of a license or key as an event of its owner. */
async function reportReuse(
  tx: RegistrationParts,
  { events }: RegistrationDeps,
  code: string,
  license: License,
  thumbprints: NodeThumbprints,
  address: string,
): Promise<void> {
  if (code !== "license-reused" && code !== "key-in-use") return;
  const owner = code === "license-reused" ? license.jti : await tx.nodes.keyOwner(thumbprints, license.jti);
  const node = owner === undefined ? undefined : await tx.nodes.label(owner);
  if (node === undefined) return;
  await events.record(tx, node, {
    eventType: "License Reused",
    level: "WARNING",
    message: `Registration from ${address} refused: ${code}`,
    details: { code, license: license.jti, address, auth: thumbprints.auth },
  });
}
