import { randomUUID } from "node:crypto";
import type { Clock } from "../../host/clock.ts";
import { signJws, type Signer } from "../../protocol/channel/jws.ts";
import { Base64Url32, NodeName, type NodeType } from "../../protocol/values/values.ts";
import type { ControlKeys } from "../channel/keys/control-keys.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import type { Transact } from "../store/transact.ts";
import { checkField } from "./fields.ts";
import type { LicenseStore } from "./license-store.ts";
import { checkNameFree, type NameHolders } from "./names.ts";

/** Stores of an open transaction that issues a license. */
export interface LicenseParts extends EventParts, NameHolders {
  readonly licenses: Pick<LicenseStore, "add">;
}

export interface LicensesDeps {
  readonly store: Transact<LicenseParts>;
  readonly events: Pick<EventLog, "change">;
  readonly keys: Pick<ControlKeys, "rootThumbprint"> & {
    readonly signing: Signer;
    readonly newest: Pick<ControlKeys["newest"], "spki">;
  };
  readonly clock: Clock;
  readonly origin: string;
  readonly org: string;
  readonly domain: string;
}

/** Order of a license. */
export interface LicenseRequest {
  readonly name: string;
  readonly type: NodeType;
  /** Thumbprint of the only key that may use it. */
  readonly jkt?: string;
  /** Provisioning order that the node belongs to, a UUID. */
  readonly orderID?: string;
  readonly user: string;
  /** Default: one day. */
  readonly lifetimeSeconds?: number;
}

const LICENSE_SECONDS = 24 * 3600;

/** Licenses, with which machines register as nodes. */
export class Licenses {
  readonly #deps: LicensesDeps;

  constructor(deps: LicensesDeps) {
    this.#deps = deps;
  }

  /** Issues a signed license. @throws {InputError} `invalid-body`, `name-taken` */
  issue(request: LicenseRequest): Promise<string> {
    return this.#deps.store.transact((tx) => this.issueIn(tx, request));
  }

  /** Issues a license in a transaction, after which it may be given away. @throws as `issue` */
  async issueIn(
    tx: LicenseParts,
    { name, type, jkt, orderID, user, lifetimeSeconds = LICENSE_SECONDS }: LicenseRequest,
  ): Promise<string> {
    const { events, keys, clock, origin, org, domain } = this.#deps;
    checkField("name", NodeName, name);
    if (jkt !== undefined) checkField("jkt", Base64Url32, jkt);
    await checkNameFree(tx, `${name}.${domain}`);
    const iat = Math.floor(clock.now() / 1000);
    const license = {
      iss: origin,
      jti: randomUUID(),
      name,
      domain,
      org,
      type,
      iat,
      exp: iat + lifetimeSeconds,
      root: keys.rootThumbprint,
      spki: keys.newest.spki,
      ...(jkt === undefined ? {} : { cnf: { jkt } }),
    };
    await tx.licenses.add(license, user, orderID);
    const node = { uid: license.jti, name, fqdn: `${name}.${domain}` };
    await events.change(tx, node, user, `License issued for ${node.fqdn} (${type})`, { action: "create" });
    return signJws("holdfast-license+jwt", license, keys.signing);
  }
}
