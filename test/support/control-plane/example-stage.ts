import { z } from "zod";
import { testCertificate } from "../certificates.ts";
import type { TriggerScript } from "./fleet-stage.ts";
import { ApiBench, members } from "./api-bench.ts";
import { eventRecord } from "./fleet-stage.ts";

const Media = z.object({
  example: z.unknown().optional(),
  examples: z.record(z.string(), z.object({ value: z.unknown().optional() })).optional(),
});
const Content = z.record(z.string(), Media);
const Parameter = z.object({ name: z.string(), in: z.enum(["path", "query"]), example: z.unknown().optional() });

/** The parts of an operation that carry examples. */
export const Operation = z.object({
  operationId: z.string(),
  description: z.string(),
  parameters: z.array(Parameter),
  requestBody: z.object({ content: Content }).optional(),
  responses: z.record(z.string(), z.object({ content: Content.optional() })),
});
export type Operation = z.infer<typeof Operation>;
const Document = z.object({ paths: z.record(z.string(), z.record(z.string(), Operation)) });

/** A documented example: a request, and the answer of success. */
export interface Example {
  readonly operationId: string;
  readonly method: string;
  /** With parameters in braces. */
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, unknown>>;
  readonly body: unknown;
  readonly answer: unknown;
}

export interface Performed {
  readonly status: number;
  readonly json: unknown;
}

/** Operations that the stage cannot perform, with the status that they answer. */
export const UNPERFORMED: ReadonlyMap<string, number> = new Map([
  ["lookUpActivation", 404],
  ["activate", 404],
  ["openTerminal", 426],
  ["getNodeTrigger", 404],
  // The node of the examples is no member of the cluster of the examples.
  ["promoteClusterMember", 422],
  ["listRepositories", 422],
  ["getRepository", 422],
  ["deleteRepository", 422],
  ["deleteImageTag", 422],
  ["issueRegistryToken", 422],
  ["getReleaseFile", 404],
]);

/** Operations that need what later ones of their method make. */
const LATE = new Set(["issueToken", "exchangeCredential"]);
const UNUSED = "unused";
const ORDER = ["POST", "PUT", "GET", "DELETE"];
const NODE = "7d8f0c5e-2b4a-4f0e-9a51-3c1d2e4f5a6b";

/** The API over a database in memory, in which the documented examples can be performed one after another. */
export class ExampleStage {
  readonly bench: ApiBench;
  readonly operations: ReadonlyMap<string, Operation>;
  readonly #pem: { readonly certificateBody: string; readonly privateKey: string };
  readonly #known = new Map<string, Record<string, unknown>>();

  static async open(): Promise<ExampleStage> {
    const bench = await ApiBench.create();
    const { json } = await bench.call("GET", "/openapi.json", { key: undefined });
    const operations = Object.values(Document.parse(json).paths).flatMap((item) => Object.values(item));
    const { cert, key } = await testCertificate({ hosts: ["edge-1.example.net"] });
    const pem = { certificateBody: cert, privateKey: key };
    const stage = new ExampleStage(bench, new Map(operations.map((one) => [one.operationId, one])), pem);
    const node = await bench.fleet.add({ uid: NODE, name: "edge-1", config: {} });
    await bench.fleet.store.events.add(eventRecord(node));
    const alert = { uid: "a1", eventType: "Node Disconnect", message: "Node disconnected", nodeId: NODE };
    const timestamp = Math.floor(Date.now() / 1000);
    await bench.fleet.store.alerts.open({ ...alert, nodeName: node.name, timestamp });
    // The policy of the examples is attached to the service user of the examples.
    const statements = [{ effect: "allow" as const, actions: ["nodes::read"] }];
    await bench.access.createPolicy({ name: UNUSED, statements, resources: ["*"] });
    bench.fleet.script = stage.#answer;
    return stage;
  }

  private constructor(
    bench: ApiBench,
    operations: ReadonlyMap<string, Operation>,
    pem: { readonly certificateBody: string; readonly privateKey: string },
  ) {
    this.bench = bench;
    this.#pem = pem;
    this.operations = operations;
  }

  /** Returns the examples in an order in which each finds what it needs: created, changed, read, deleted from the inside out. */
  examples(): readonly Example[] {
    const all = this.bench.routes.map(({ operationId, method, path }) => this.#example(operationId, method, path));
    const rank = ({ method, operationId }: Example): number =>
      ORDER.indexOf(method) + (LATE.has(operationId) ? 0.5 : 0);
    const depth = ({ method, path }: Example): number => (method === "DELETE" ? -path.length : 0);
    return all.sort((a, b) => rank(a) - rank(b) || depth(a) - depth(b));
  }

  /** Replaces what only earlier answers know: identifiers and secrets that the controller made. */
  adapted(example: Example): Example {
    const { params, body } = example;
    const known = (operation: string) => this.#known.get(operation) ?? {};
    const credential = known("createServiceUserToken");
    switch (example.operationId) {
      case "deleteAgentToken":
        return { ...example, params: { ...params, id: String(known("createAgentToken")["id"]) } };
      case "exchangeCredential":
        return { ...example, body: { clientId: credential["clientId"], secret: credential["clientSecret"] } };
      case "issueToken": {
        const [client_id, client_secret] = [credential["clientId"], credential["clientSecret"]];
        return { ...example, body: { ...members(body), client_id, client_secret } };
      }
      case "createCertificate":
      case "replaceCertificate":
        return { ...example, body: { fqdn: params["fqdn"] ?? members(body)["fqdn"], ...this.#pem } };
      case "deletePolicy":
        return { ...example, params: { name: UNUSED } };
      default:
        return example;
    }
  }

  /** Remembers the answer to an example. */
  learn({ operationId }: Example, json: unknown): void {
    const parsed = z.record(z.string(), z.unknown()).safeParse(json);
    if (parsed.success) this.#known.set(operationId, parsed.data);
  }

  async perform(example: Example): Promise<Performed> {
    const adapted = this.adapted(example);
    const { method, params, query, body } = adapted;
    const path = adapted.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
    const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
    const target = search.size === 0 ? path : `${path}?${search.toString()}`;
    const isOpen = this.bench.routes.some((route) => route.operationId === example.operationId && route.isOpen);
    const options = { ...(isOpen ? { key: undefined } : {}), ...(body === undefined ? {} : { json: body }) };
    const { status, json } = await this.bench.call(method, target, options);
    this.learn(example, json);
    return { status, json };
  }

  #example(operationId: string, method: string, path: string): Example {
    const operation = this.operations.get(operationId);
    if (operation === undefined) throw new Error(`${operationId} is not in the document`);
    const given = (where: "path" | "query") =>
      operation.parameters
        .filter((one) => one.in === where && one.example !== undefined)
        .map(({ name, example }) => [name, example] as const);
    const params = Object.fromEntries(given("path").map(([name, value]) => [name, String(value)]));
    const named = Object.values(params).at(-1) ?? "";
    const [, success] = Object.entries(operation.responses).find(([status]) => status.startsWith("2")) ?? [];
    return {
      operationId,
      method,
      path,
      params,
      query: Object.fromEntries(given("query")),
      body: exampleIn(operation.requestBody?.content, named),
      answer: exampleIn(success?.content, named),
    };
  }

  /** Plays the node: answers each event with its example, and its data store by what is asked. */
  readonly #answer: TriggerScript = ({ event, body, wait }) => {
    if (!wait) return Promise.resolve(true);
    const image = { bytes: 1, format: "qcow2", virtualBytes: 1 };
    const { action } = z.object({ action: z.string().optional() }).parse(body);
    if (action === "IMAGE_INFO") return Promise.resolve(image);
    const operation = event === "datastore-manager" ? STORE_OPERATIONS.get(action ?? "") : undefined;
    const path = this.bench.routes.find((route) => route.operationId === operation);
    if (path !== undefined) return Promise.resolve(this.#example(path.operationId, path.method, path.path).answer);
    const trigger = this.operations.get("triggerNode");
    return Promise.resolve(exampleIn(trigger?.responses["200"]?.content, event));
  };
}

/** Operations whose examples are what the data store of a node answers to each action. */
const STORE_OPERATIONS: ReadonlyMap<string, string> = new Map([
  ["LIST", "listDataStore"],
  ["TASKS", "listDataStoreTasks"],
  ["DELETE", "deleteFromDataStore"],
  ["MKDIR", "makeDataStoreDirectory"],
  ["CANCEL", "endDataStoreTask"],
  ["CLEAR", "endDataStoreTask"],
  ["HTTP_DOWNLOAD", "downloadToDataStore"],
  ["HTTP_UPLOAD", "uploadFromDataStore"],
  ["S3_DOWNLOAD", "downloadFromBucket"],
  ["S3_UPLOAD", "uploadToBucket"],
]);

function exampleIn(content: z.infer<typeof Content> | undefined, named: string): unknown {
  const { example, examples } = content?.["application/json"] ?? {};
  return examples?.[named]?.value ?? example;
}
