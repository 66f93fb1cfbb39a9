import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import { anyOf } from "../access/policies/permissions.ts";
import type { Source } from "./sources.ts";
import { BODY_LIMITS, readJson } from "./body.ts";
import { ANYBODY, forbidden, type Caller } from "./caller.ts";
import { Violations, withViolations } from "./problem.ts";
import { queryValues } from "./query.ts";
import { violations } from "./shapes.ts";
import type { Upgrade } from "./upgrade.ts";

export type HttpMethod = "GET" | "POST" | "PUT" | "DELETE";

/** Response of one status. */
export interface AnswerSpec {
  readonly description: string;
  readonly schema?: z.ZodType;
  /** Default: `application/json`. */
  readonly mediaTypes?: readonly string[];
  /** Header names in lower case. */
  readonly headers?: Readonly<Record<string, { readonly description: string; readonly schema: z.ZodType }>>;
}

/**
 * Access rule: open to all; open to every caller with a valid credential; one of the permissions, most specific first, on the named
 * resource; or one of them on any resource of the kind, in which case the handler omits what the caller may not read. `{event}` in a
 * permission is the path parameter.
 */
export type Access<P> =
  | { readonly to: "all" }
  | { readonly to: "caller" }
  | {
      readonly to: "resource";
      readonly permissions: readonly string[];
      /** Returns permissions that replace these for some parameters. */
      readonly instead?: (params: P) => readonly string[] | undefined | Promise<readonly string[] | undefined>;
      readonly resource: (params: P) => string | Promise<string>;
    }
  | {
      readonly to: "kind";
      readonly permissions: readonly string[];
      readonly kind: string;
      /** A second kind, of which any resource is sufficient as well. */
      readonly otherKind?: string;
    };

/** Forms of body and answer by the value of a path parameter; values that are not listed have the general form. */
export interface Variants {
  readonly parameter: string;
  readonly values: Readonly<Record<string, Variant>>;
  /** Answer to every value in a request that sets none of these flags. */
  readonly unless?: { readonly query: readonly string[]; readonly answer: unknown };
}

/** Body and answer of one value; a part without an example gets one made of its schema. */
export interface Variant {
  readonly body: z.ZodType;
  readonly answer: z.ZodType;
  readonly example?: { readonly body?: object; readonly answer?: object };
}

/** One operation: description and handler. */
export interface RouteSpec<P extends z.ZodObject, Q extends z.ZodObject, B extends z.ZodType> {
  readonly method: HttpMethod;
  /** Parameters are in braces, as in OpenAPI. */
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  /** Sentences after the summary, before those about access. */
  readonly description?: string;
  readonly tag: string;
  readonly isDeprecated?: boolean;
  readonly access: Access<z.infer<P>>;
  readonly params?: P;
  readonly query?: Q;
  /** `root` prefixes the lines of violations; `described` documents a stricter form than `schema` checks. */
  readonly body?: {
    readonly schema: B;
    readonly root?: string;
    readonly limits?: JsonLimits;
    readonly described?: z.ZodType;
  };
  /** A form or JSON body that the handler parses itself; only documented here. */
  readonly form?: z.ZodType;
  readonly answers: Readonly<Record<number, AnswerSpec>>;
  readonly variants?: Variants;
  readonly handle: (call: Call<z.infer<P>, z.infer<Q>, z.infer<B>>) => Response | Promise<Response>;
}

/** A request for its handler: authenticated, authorized and parsed. */
export interface Call<P, Q, B> {
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  readonly search: URLSearchParams;
  readonly request: Request;
  readonly caller: Caller;
  /** Joins the caller's socket to a terminal; undefined without an upgrade request. */
  readonly upgrade: Upgrade | undefined;
  readonly source: Source;
}

/** A request before parsing. */
export interface RawCall {
  readonly params: Readonly<Record<string, string>>;
  readonly search: URLSearchParams;
  readonly request: Request;
  /** Authenticates the caller or throws. */
  readonly identify: () => Promise<Caller>;
  readonly upgrade: Upgrade | undefined;
  readonly source: Source;
}

/** A type-erased operation in the route table. */
export interface Route {
  readonly method: HttpMethod;
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly tag: string;
  readonly isDeprecated: boolean;
  /** Set if the operation takes no credential. */
  readonly isOpen: boolean;
  /** Alternatives, any of which is sufficient; empty if none is required. */
  readonly permissions: readonly string[];
  readonly params: z.ZodObject | undefined;
  readonly query: z.ZodObject | undefined;
  readonly body: z.ZodType | undefined;
  readonly form: z.ZodType | undefined;
  readonly answers: Readonly<Record<number, AnswerSpec>>;
  readonly variants: Variants | undefined;
  /** Checks a request as `run` does before it calls the handler; returns its query. */
  readonly check: (call: RawCall) => Promise<{ readonly query: Readonly<Record<string, unknown>> }>;
  readonly run: (call: RawCall) => Promise<Response>;
}

const Nothing = z.object({});

/** Builds an entry of the route table. `run` checks the caller, path parameters, permission, query and body, then calls the handler. */
export function route<
  P extends z.ZodObject = typeof Nothing,
  Q extends z.ZodObject = typeof Nothing,
  B extends z.ZodType = z.ZodUndefined,
>(spec: RouteSpec<P, Q, B>): Route {
  const checked = async ({ request, search, params: rawParams, identify, upgrade, source }: RawCall) => {
    const caller = spec.access.to === "all" ? ANYBODY : await identify();
    const params = readParams(spec.params ?? Nothing, rawParams) as z.infer<P>;
    await checkAccess(spec.access, params, caller);
    const query = read(
      spec.query ?? Nothing,
      queryValues(search, (spec.query ?? Nothing).shape),
      "query",
    ) as z.infer<Q>;
    const body = spec.body === undefined ? undefined : await readBody(request, spec.body);
    // Without a schema, a part has the type of the default parameter, which the compiler cannot follow here.
    return { params, query, body: body as z.infer<B>, search, request, caller, upgrade, source };
  };
  return {
    method: spec.method,
    path: spec.path,
    operationId: spec.operationId,
    summary: spec.summary,
    description: [`${spec.summary}.`, spec.description, accessText(spec.access)].filter(Boolean).join(" "),
    tag: spec.tag,
    isDeprecated: spec.isDeprecated ?? false,
    isOpen: spec.access.to === "all",
    permissions: permissionsOf(spec.access),
    params: spec.params,
    query: spec.query,
    body: spec.body?.described ?? spec.body?.schema,
    form: spec.form,
    // Unknown query parameters are refused on every path.
    answers: { ...violations, ...spec.answers },
    variants: spec.variants,
    check: checked,
    run: async (call) => spec.handle(await checked(call)),
  };
}

/** Returns the sentence about who may call an operation. */
function accessText<P>(access: Access<P>): string {
  if (access.to === "all") return "Requires no credential.";
  if (access.to === "caller") return "Requires a valid credential.";
  const named = permissionsOf(access).map((name) => `\`${name}\``);
  if (access.to === "kind") return `Requires ${named.join(" or ")} on some resource; others are not shown.`;
  return `Requires ${named.join(" or ")} on the resource.`;
}

function permissionsOf<P>(access: Access<P>): readonly string[] {
  if (access.to === "all" || access.to === "caller") return [];
  return access.permissions;
}

async function checkAccess<P extends Record<string, unknown>>(
  access: Access<P>,
  params: P,
  caller: Caller,
): Promise<void> {
  if (access.to === "resource") {
    const permissions = access.permissions.map((name) => name.replace("{event}", String(params["event"])));
    await caller.require((await access.instead?.(params)) ?? permissions, await access.resource(params));
  } else if (access.to === "kind") {
    const { permissions, kind, otherKind = kind } = access;
    const isReached = [kind, otherKind].some((one) => caller.reach(permissions, one) !== "none");
    if (!isReached) throw forbidden(permissions, anyOf(kind));
  }
}

/** Parses path parameters; an invalid one names something that cannot exist. */
function readParams(schema: z.ZodObject, raw: Readonly<Record<string, string>>): unknown {
  const unknown = Object.entries(raw).find(([, value]) => value.includes("\0"));
  if (unknown !== undefined) throw new InputError("not-found", `${unknown[0]}: nothing has a name with U+0000`);
  const parsed = schema.safeParse(raw);
  if (parsed.success) return parsed.data;
  throw new InputError("not-found", describeIssues(parsed.error).join("; "));
}

const JSON_REFUSALS = ["invalid-json", "invalid-utf8", "too-deep", "forbidden-key", "repeated-name"];

async function readBody(
  request: Request,
  spec: { readonly schema: z.ZodType; readonly root?: string; readonly limits?: JsonLimits },
): Promise<unknown> {
  const root = spec.root ?? "body";
  const value = await withViolations(
    root,
    JSON_REFUSALS,
    () => readJson(request, spec.limits ?? BODY_LIMITS),
    spec.root,
  );
  return read(spec.schema, value, root, spec.root);
}

/** Parses a value. @throws {Violations} each prefixed with the field's path below `root`; `whole` names the value itself */
function read(schema: z.ZodType, value: unknown, whole: string, root = ""): unknown {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Violations(describeIssues(parsed.error, root, whole));
}
