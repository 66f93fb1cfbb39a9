import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { License, RegisterClaims } from "../../protocol/documents/claims.ts";
import { SESSION_PATH } from "../../protocol/channel/envelope.ts";
import { peekClaims, signJws, verifyJws } from "../../protocol/channel/jws.ts";
import { thumbprintsOf, type NodeThumbprints } from "../../protocol/values/keys.ts";
import type { RegistrationAnswer } from "../../protocol/channel/registration.ts";
import type { EventLog } from "../events/service.ts";
import type { ControlKeys } from "./keys/control-keys.ts";
import { NEW_IDENTITY } from "../nodes/identity.ts";
import { checkClaims, checkKeys, judgeRegistration, type RegistrationVerdict } from "../nodes/registration-rules.ts";
import type { Atomic } from "../store/atomic.ts";
import type { ClusterStore } from "../clusters/store.ts";
import type { LicenseStore } from "../nodes/license-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TombstoneStore } from "../nodes/tombstone-store.ts";
import type { Announcer } from "./announcer.ts";
import type { Awaiting } from "./awaiting.ts";
import type { Documents } from "./documents/documents.ts";

type Tables = Atomic & {
  readonly clusters: ClusterStore;
  readonly licenses: LicenseStore;
  readonly nodes: NodeStore;
  readonly tombstones: TombstoneStore;
};

export interface RegistrationDeps {
  readonly store: Tables;
  readonly events: EventLog;
  readonly documents: Documents;
  readonly announcer: Pick<Announcer, "changed">;
  readonly awaiting: Pick<Awaiting, "expect">;
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
  const { store, keys, clock, origin } = deps;
  const { claims, thumbprints } = await verifyRegister(jws);
  const license = await verifyJws("holdfast-license+jwt", claims.license, keys.accepted);
  checkClaims(license, claims, origin, thumbprints.auth);
  checkKeys(claims.keys);

  const nowSeconds = clock.now() / 1000;
  const { verdict, changed } = store.atomic(() => {
    const judged = judgeRegistration(license, thumbprints, factsOf(store, license, thumbprints), nowSeconds);
    if (judged.kind === "refused") reportReuse(deps, judged.code, license, thumbprints, address);
    const changes = judged.kind === "new" ? enter(deps, license, claims, thumbprints, nowSeconds) : [];
    return { verdict: judged, changed: changes };
  });
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

function factsOf(store: Tables, license: License, thumbprints: NodeThumbprints) {
  const fqdn = `${license.name}.${license.domain}`;
  const namesake = store.nodes.byFqdn(fqdn);
  return {
    registered: store.nodes.credentials(license.jti)?.thumbprints,
    isDeleted: store.tombstones.get(license.jti) !== undefined,
    keyOwner: store.nodes.keyOwner(thumbprints, license.jti),
    isNameTaken: (namesake !== undefined && namesake.uid !== license.jti) || store.clusters.get(fqdn) !== undefined,
  };
}

/** Stores a new node and returns the changed documents of all nodes. */
function enter(
  { store, events, documents, awaiting }: RegistrationDeps,
  license: License,
  claims: RegisterClaims,
  thumbprints: NodeThumbprints,
  nowSeconds: number,
): ReturnType<Documents["refresh"]> {
  const { jti: uid, name, domain, org, type } = license;
  const fqdn = `${name}.${domain}`;
  store.nodes.add({
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
  });
  store.licenses.consume(uid, nowSeconds);
  awaiting.expect(uid, "registration");
  events.record(
    { uid, name, fqdn },
    { eventType: "Configuration Change", level: "INFO", message: "Node registered", details: { type } },
  );
  return documents.refresh([uid]);
}

/** Reports the misuse of a license or key as an event of its owner. */
function reportReuse(
  { store, events }: RegistrationDeps,
  code: string,
  license: License,
  thumbprints: NodeThumbprints,
  address: string,
): void {
  if (code !== "license-reused" && code !== "key-in-use") return;
  const owner = code === "license-reused" ? license.jti : store.nodes.keyOwner(thumbprints, license.jti);
  const node = owner === undefined ? undefined : store.nodes.label(owner);
  if (node === undefined) return;
  events.record(node, {
    eventType: "License Reused",
    level: "WARNING",
    message: `Registration from ${address} refused: ${code}`,
    details: { code, license: license.jti, address, auth: thumbprints.auth },
  });
}
