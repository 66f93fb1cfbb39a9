import { z } from "zod";
import { SessionError } from "../../errors.ts";
import { knownPermissions } from "../access/policies/permissions.ts";
import type { ApiDeps } from "./api.ts";
import { openApiDocument, OTHER_VALUES } from "./openapi.ts";
import type { RawCall, Route } from "./route.ts";

const Example = z.object({ value: z.unknown().optional() });
const Answers = z.record(
  z.string(),
  z.object({
    content: z
      .record(
        z.string(),
        z.object({ example: z.unknown().optional(), examples: z.record(z.string(), Example).optional() }),
      )
      .optional(),
  }),
);
const Document = z.object({ paths: z.record(z.string(), z.record(z.string(), z.object({ responses: Answers }))) });

/**
 * Returns an API that checks requests as `routes` do and answers them with the documented examples. It accepts every credential of a
 * valid form, and keeps nothing.
 */
export function mockApi(routes: readonly Route[], version: string): Pick<ApiDeps, "routes" | "access" | "tokens"> {
  const { paths } = Document.parse(openApiDocument(routes, version));
  // Some permissions are granted by name only.
  const statements = [{ effect: "allow" as const, actions: ["*", ...knownPermissions] }];
  const grant = { name: "mock", policies: [{ name: "mock", statements, resources: ["*"] }] };
  const subject = { user: grant.name, clientId: grant.name };
  return {
    routes: routes.map((route) => mocked(route, paths[route.path]?.[route.method.toLowerCase()]?.responses ?? {})),
    access: {
      findApiKey: () => Promise.resolve(grant),
      findServiceUser: () => Promise.resolve(grant),
      checkCredential: () => Promise.resolve(grant.name),
    },
    tokens: { verify: () => Promise.resolve(subject) },
  };
}

function mocked(route: Route, answers: z.infer<typeof Answers>): Route {
  // Health and the document are the real ones.
  if (route.tag === "Service") return route;
  const run = async (call: RawCall): Promise<Response> => {
    const { query } = await route.check(call);
    const { unless } = route.variants ?? {};
    if (unless !== undefined && !unless.query.some((flag) => query[flag] === true)) return Response.json(unless.answer);
    const [, answer] = Object.entries(answers).find(([status]) => status.startsWith("2")) ?? [];
    if (answer === undefined)
      throw new SessionError("not-supported", `the mock has no example of ${route.operationId}`);
    const [[type, media] = [undefined, undefined]] = Object.entries(answer.content ?? {});
    if (type === undefined || media === undefined) return new Response(null);
    const value = exampleFor(media, call.params[route.variants?.parameter ?? ""]);
    const text = typeof value === "string" ? value : "";
    const body = type === "application/json" ? JSON.stringify(value ?? null) : text;
    return new Response(body, { headers: { "content-type": type } });
  };
  return { ...route, run };
}

type Media = NonNullable<z.infer<typeof Answers>[string]["content"]>[string];

/** Returns the example of a media type: the one with this name, or the general one. */
function exampleFor({ example, examples }: Media, name = ""): unknown {
  if (examples === undefined) return example;
  return examples[Object.hasOwn(examples, name) ? name : OTHER_VALUES]?.value;
}
