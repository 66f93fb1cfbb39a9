import { z } from "zod";
import { InputError } from "../../errors.ts";
import { ImageTag, RepositoryName } from "../../protocol/documents/registry.ts";
import { tgrn } from "../access/policies/permissions.ts";
import type { Registry } from "./registry.ts";
import { route, type Route } from "../http/route.ts";
import { Empty, notFound, Problem, refusals } from "../http/shapes.ts";

const tag = "Repositories";
const Repository = z.object({
  reponame: RepositoryName.meta({ description: "A slash in the name is written as `%2F`" }),
});
const RepositoryTag = Repository.extend({ tag: ImageTag });
const PublicTag = z
  .strictObject({
    name: z.string(),
    digest: z.string(),
    uri: z.string().meta({ description: "Full reference, with the registry's host" }),
    size: z
      .int()
      .min(0)
      .optional()
      .meta({ description: "Total size of the layers in bytes; absent for a multi-platform image" }),
  })
  .meta({ id: "ImageTag" });

const answers = {
  502: { description: "The registry did not respond or returned an error", schema: Problem },
  ...refusals,
  ...notFound,
} as const;

export interface RepositoryRouteDeps {
  /** Undefined without a registry. */
  readonly registry?: Registry | undefined;
}

/** Routes of the organization's image repositories. */
export function repositoryRoutes({ registry }: RepositoryRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/repositories",
      operationId: "listRepositories",
      summary: "List the image repositories that have tags",
      tag,
      access: { to: "kind", permissions: ["repositories::read"], kind: tgrn.repository("") },
      answers: {
        ...answers,
        200: {
          description: "The repositories the caller may read",
          schema: z.array(z.strictObject({ name: z.string() })),
        },
      },
      handle: async ({ caller }) => {
        const names = await need(registry).repositories();
        const may = await caller.among(["repositories::read"]);
        const shown = names.filter((name) => may(tgrn.repository(name)));
        return Response.json(shown.map((name) => ({ name })));
      },
    }),
    route({
      method: "GET",
      path: "/repositories/{reponame}",
      operationId: "getRepository",
      summary: "List the tags of a repository",
      tag,
      access: needs("repositories::read"),
      params: Repository,
      answers: { ...answers, 200: { description: "The tags", schema: z.array(PublicTag) } },
      handle: async ({ params: { reponame } }) => {
        const tags = await need(registry).tags(reponame);
        if (tags === undefined) throw noSuch(reponame);
        return Response.json(tags);
      },
    }),
    route({
      method: "DELETE",
      path: "/repositories/{reponame}",
      operationId: "deleteRepository",
      summary: "Remove a repository with all its images; running containers continue",
      tag,
      access: needs("repositories::modify"),
      params: Repository,
      answers: { ...answers, 200: { description: "Removed", schema: Empty } },
      handle: async ({ params: { reponame } }) => {
        if (!(await need(registry).removeRepository(reponame))) throw noSuch(reponame);
        return Response.json({});
      },
    }),
    route({
      method: "DELETE",
      path: "/repositories/{reponame}/{tag}",
      operationId: "deleteImageTag",
      summary: "Remove one tag; other tags of the same image stay",
      tag,
      access: needs("repositories::modify"),
      params: RepositoryTag,
      answers: { ...answers, 200: { description: "Removed", schema: Empty } },
      handle: async ({ params: { reponame, tag } }) => {
        if (!(await need(registry).removeTag(reponame, tag))) throw noSuch(`${reponame}:${tag}`);
        return Response.json({});
      },
    }),
  ];
}

const needs = (permission: string) => ({
  to: "resource" as const,
  permissions: [permission],
  resource: ({ reponame }: { readonly reponame: string }): string => tgrn.repository(reponame),
});

/** @throws {InputError} `not-configured` */
function need(registry: Registry | undefined): Registry {
  if (registry !== undefined) return registry;
  throw new InputError("not-configured", "this control plane has no registry; start it with --registry");
}

const noSuch = (name: string): InputError => new InputError("not-found", `there is no ${name} in the registry`);
