import { generateKeyPairSync, randomUUID, webcrypto } from "node:crypto";
import { pino } from "pino";
import { z } from "zod";
import { AgentTokens } from "../../../src/controller/access/agent-tokens/service.ts";
import { ADMIN_POLICY, type Policy } from "../../../src/controller/access/policies/policy.ts";
import { sha256Hex, type AccessStore } from "../../../src/controller/access/store.ts";
import { withoutUnset } from "../../../src/controller/config/unset.ts";
import { createApi, type ApiDeps } from "../../../src/controller/http/api.ts";
import type { Route } from "../../../src/controller/http/route.ts";
import { Certificates } from "../../../src/controller/certificates/service.ts";
import { MachineVolumes } from "../../../src/controller/images/volumes.ts";
import { Images } from "../../../src/controller/images/service.ts";
import { jwtIssuer } from "../../../src/controller/http/tokens.ts";
import { Activations } from "../../../src/controller/nodes/activations/service.ts";
import { Organization } from "../../../src/controller/org/service.ts";
import { apiRoutes, type RouteDeps } from "../../../src/controller/routes.ts";
import type { Stores } from "../../../src/controller/stores.ts";
import type { FlowStore } from "../../../src/controller/stats/flow-store.ts";
import type { GatewayDetailsStore } from "../../../src/controller/stats/gateway-details-store.ts";
import { ReplyJoins } from "../../../src/controller/triggers/reply-joins.ts";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import { DOMAIN, FleetStage, ORG } from "./fleet-stage.ts";
import { restorePoint } from "./restore-point.ts";

export const ADMIN_KEY = "admin-key-of-the-tests";
export const ORIGIN = "https://cp.example.net:8480";

/** The parts of a request besides method and path. */
export interface CallOptions {
  readonly key?: string | undefined;
  readonly json?: unknown;
  readonly body?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An answer with its body. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: unknown;
}

/** Texts of the schema library, which answers must not contain. */
const LIBRARY_WORDS = /: (Too (small|big)|Invalid (input|string|key|option|type|number)|Unrecognized)/;

/** The API over the services and a database in memory; every answer is held against what its route declares. */
export class ApiBench {
  readonly fleet: FleetStage;
  readonly flows: FlowStore;
  readonly gatewayDetails: GatewayDetailsStore;
  readonly access: AccessStore;
  readonly activations: Activations;
  readonly agentTokens: AgentTokens<Stores>;
  readonly app: ReturnType<typeof createApi>;
  readonly routes: readonly Route[];
  readonly deps: RouteDeps & ApiDeps;
  readonly logged: string[] = [];
  readonly #patterns: ReadonlyMap<Route, RegExp>;

  private constructor(
    fleet: FleetStage,
    privateKey: webcrypto.CryptoKey,
    publicKey: webcrypto.CryptoKey,
    clock: Clock,
    secretOverlapSeconds: number,
  ) {
    const log = pino({ level: "debug" }, { write: (line: string) => void this.logged.push(line) });
    this.fleet = fleet;
    const { store, services } = this.fleet;
    this.flows = store.flows;
    this.gatewayDetails = store.gatewayDetails;
    this.access = store.access;
    const { licenses } = services;
    this.activations = new Activations({ clock, origin: ORIGIN, issue: (request) => licenses.issue(request) });
    this.agentTokens = new AgentTokens({
      store,
      events: services.events,
      keys: { rootThumbprint: "A".repeat(43), newest: { spki: [] } },
      clock,
      origin: ORIGIN,
      issue: (tx, request) => licenses.issueIn(tx, request),
    });
    const deps = {
      ...store,
      store,
      ...services,
      requests: this.fleet.requests,
      images: new Images({ store, events: services.events }),
      machineVolumes: new MachineVolumes({ store, events: services.events }),
      organization: new Organization({ store, events: services.events, domain: DOMAIN }),
      certificates: new Certificates({ store, events: services.events, clock }),
      checkStore: () => store.check(),
      joins: new ReplyJoins(),
      activations: this.activations,
      agentTokens: this.agentTokens,
      secretOverlapSeconds,
      registryHost: "registry.example.net:5000",
      tokens: jwtIssuer({ origin: ORIGIN, privateKey, publicKey, clock }),
      org: ORG,
      domain: DOMAIN,
      version: "0.0.0-test",
      clock,
      log,
    };
    this.routes = apiRoutes(deps);
    this.#patterns = new Map(this.routes.map((one) => [one, patternOf(one.path)]));
    this.deps = { ...deps, routes: this.routes };
    this.app = createApi(this.deps);
  }

  static async create(clock: Clock = systemClock(), { secretOverlapSeconds = 0 } = {}): Promise<ApiBench> {
    const pair = generateKeyPairSync("ed25519");
    const imported = await Promise.all([
      webcrypto.subtle.importKey("pkcs8", pair.privateKey.export({ type: "pkcs8", format: "der" }), "Ed25519", false, [
        "sign",
      ]),
      webcrypto.subtle.importKey("spki", pair.publicKey.export({ type: "spki", format: "der" }), "Ed25519", true, [
        "verify",
      ]),
    ]);
    const [privateKey, publicKey] = imported;
    const fleet = await FleetStage.open(clock, ORIGIN, { kid: "test", privateKey });
    const bench = new ApiBench(fleet, privateKey, publicKey, clock, secretOverlapSeconds);
    await bench.access.putApiKey("admin", sha256Hex(ADMIN_KEY), [ADMIN_POLICY]);
    return bench;
  }

  /** Returns a function that makes the stored state what it is now, for tests that change it. On SQLite only. */
  keep(): Promise<() => Promise<void>> {
    return restorePoint(this.fleet.store.database);
  }

  /** Creates an API key with one policy: these actions on these resources. */
  async keyFor(
    actions: readonly string[],
    resources: readonly string[] = ["*"],
    deny: readonly string[] = [],
  ): Promise<string> {
    const statements: Policy["statements"] = [{ effect: "allow", actions: [...actions] }];
    if (deny.length > 0) statements.push({ effect: "deny", actions: [...deny] });
    return this.keyHolding([{ name: "test", statements, resources: [...resources] }]);
  }

  /** Creates an API key with these policies. */
  async keyHolding(policies: readonly Policy[]): Promise<string> {
    const key = randomUUID();
    await this.access.putApiKey(key, sha256Hex(key), policies);
    return key;
  }

  /** Sends one request, as the admin by default. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const key = "key" in options ? options.key : ADMIN_KEY;
    const headers = new Headers(key === undefined ? {} : { authorization: key });
    if (options.json !== undefined) headers.set("content-type", "application/json");
    for (const [name, value] of Object.entries(options.headers ?? {})) headers.set(name, value);
    const body = options.json === undefined ? options.body : JSON.stringify(options.json);
    const response = await this.app.request(path, { method, headers, ...(body === undefined ? {} : { body }) });
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.startsWith("application/json") ?? false;
    const json: unknown = isJson && text !== "" ? JSON.parse(text) : undefined;
    this.#check(method, path, response.status, json);
    return { status: response.status, headers: response.headers, text, json };
  }

  #check(method: string, path: string, status: number, json: unknown): void {
    const [pathname = ""] = path.split("?", 1);
    const route = this.routes.find((one) => one.method === method && this.#patterns.get(one)?.test(pathname));
    if (route === undefined || status === 404 || status === 414) return;
    const declared = route.answers[status];
    if (declared === undefined) throw new Error(`${route.operationId} does not declare ${status}`);
    if (LIBRARY_WORDS.test(JSON.stringify(json) ?? ""))
      throw new Error(`${route.operationId}: ${JSON.stringify(json)}`);
    if (json === undefined || declared.schema === undefined) return;
    const parsed = declared.schema.safeParse(json);
    // What a client left empty comes back empty.
    if (!parsed.success && !declared.schema.safeParse(withoutUnset(json)).success)
      throw new Error(`${route.operationId} ${status}: ${z.prettifyError(parsed.error)}`);
  }
}

/** Returns the members of an answer that is an object. */
export function members(json: unknown): Record<string, unknown> {
  return z.record(z.string(), z.unknown()).parse(json);
}

/** Returns the items of an answer that is a list of objects. */
export function items(json: unknown): Record<string, unknown>[] {
  return z.array(z.record(z.string(), z.unknown())).parse(json);
}

const patternOf = (path: string): RegExp =>
  new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+")}$`);
