import { randomUUID } from "node:crypto";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import { ConnectorItem, normaliseConnectors, StoredConnector } from "../../protocol/sections/connectors/connectors.ts";
import {
  isObject,
  isV2,
  MAX_ID_LENGTH,
  MAX_ITEMS,
  upgradeToV2,
  v2Items,
} from "../../protocol/sections/common/forms.ts";
import type { ItemSection } from "../../protocol/sections/common/forms.ts";
import type { ConfigIssue } from "../../protocol/sections/common/issue.ts";
import { normaliseServices, ServiceItem, StoredService } from "../../protocol/sections/services/services.ts";
import { MAX_INDEX } from "../../protocol/sections/common/fields.ts";
import { SECTION_MAX_BYTES, SECTION_MAX_DEPTH } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import { warnOf } from "./not-applied.ts";
import { accessTo, NodeParams, warned } from "./routes.ts";
import type { Caller } from "../http/caller.ts";
import { destinationsOf, requireDestinations } from "./connector-rights.ts";
import { itemExamples, sectionForm } from "./section-forms.ts";
import { checkTargets } from "./section-targets.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import type { StoredNode } from "../nodes/store.ts";
import { takingUnset } from "./unset.ts";
import type { ConfigService } from "./service.ts";

/** A section whose items have operations of their own. */
interface Itemised {
  readonly section: ItemSection;
  /** Name of one item, and the path parameter of its id. */
  readonly noun: string;
  readonly parameter: string;
  readonly body: z.ZodType<JsonObject>;
  readonly stored: z.ZodType<JsonObject>;
  /** Returns the issues of a section, item by item. */
  readonly judge: (section: JsonObject, node: StoredNode) => readonly ConfigIssue[];
}

const stored = { id: "2f6d1c3b-8e7a-4d5c-9b0a-1e2f3a4b5c6d", index: 0 };
const ITEMISED: readonly Itemised[] = [
  {
    section: "connectors",
    noun: "Connector",
    parameter: "connectorID",
    body: ConnectorItem.meta({ id: "ConnectorItem", examples: [itemExamples.connectors] }),
    stored: StoredConnector.meta({ id: "StoredConnector", examples: [{ ...itemExamples.connectors, ...stored }] }),
    judge: (section, { type }) => normaliseConnectors(section, { nodeType: type }).rejected,
  },
  {
    section: "services",
    noun: "Service",
    parameter: "serviceID",
    body: ServiceItem.meta({ id: "ServiceItem", examples: [itemExamples.services] }),
    stored: StoredService.meta({ id: "StoredService", examples: [{ ...itemExamples.services, ...stored }] }),
    judge: (section) => normaliseServices(section).rejected,
  },
];

const LIMITS = { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH - 2 };

export interface ItemRouteDeps {
  readonly config: ConfigService;
}

/** Routes of single items in a node's `connectors` and `services`, and the upgrade from the legacy form. */
export function nodeItemRoutes(deps: ItemRouteDeps): readonly Route[] {
  return ITEMISED.flatMap((kind) => [upgrade(deps, kind), create(deps, kind), update(deps, kind), remove(deps, kind)]);
}

function create(deps: ItemRouteDeps, kind: Itemised): Route {
  const { section, noun } = kind;
  return route({
    method: "POST",
    path: `/v2/node/{nodeID}/config/${section}`,
    operationId: `createNode${noun}`,
    summary: `Add a ${noun.toLowerCase()} to a node`,
    tag: "Node configuration",
    access: accessTo(section),
    params: NodeParams,
    body: { schema: takingUnset(kind.body), described: kind.body, limits: LIMITS },
    answers: {
      200: { description: "The item with its new id", schema: kind.stored, headers: warned },
      ...refusals,
      ...notFound,
      ...badBody,
    },
    handle: async ({ params: { nodeID }, body, caller }) => {
      const id = randomUUID();
      return putItem(deps, nodeID, id, kind, caller, (stored) => {
        const all = v2Items(stored);
        if (Object.keys(all).length >= MAX_ITEMS)
          throw new Violations([`${section}.items: must be at most ${MAX_ITEMS}`]);
        return { index: nextIndex(all), ...body, id };
      });
    },
  });
}

function update(deps: ItemRouteDeps, kind: Itemised): Route {
  const { section, noun, parameter } = kind;
  return route({
    method: "PUT",
    path: itemPath(kind),
    operationId: `updateNode${noun}`,
    summary: `Replace a ${noun.toLowerCase()} of a node`,
    tag: "Node configuration",
    access: accessTo(section),
    params: itemParams(kind),
    body: { schema: takingUnset(kind.body), described: kind.body, limits: LIMITS },
    answers: {
      200: { description: "The item", schema: kind.stored, headers: warned },
      ...refusals,
      ...notFound,
      ...badBody,
    },
    handle: async ({ params, body, caller }) => {
      const { nodeID = "", [parameter]: id = "" } = params;
      return putItem(deps, nodeID, id, kind, caller, (stored) => {
        const { index } = itemOf(stored, id, noun);
        if (body["id"] !== undefined && body["id"] !== "" && body["id"] !== id)
          throw new Violations([`id: must be ${id}, or absent`]);
        return { ...defined({ index }), ...body, id };
      });
    },
  });
}

function remove(deps: ItemRouteDeps, kind: Itemised): Route {
  const { section, noun, parameter } = kind;
  return route({
    method: "DELETE",
    path: itemPath(kind),
    operationId: `deleteNode${noun}`,
    summary: `Remove a ${noun.toLowerCase()} from a node; also succeeds if there is none with this id`,
    tag: "Node configuration",
    access: accessTo(section),
    params: itemParams(kind),
    answers: { 200: { description: "Removed", schema: Empty }, ...refusals, ...notFound },
    handle: async ({ params, caller }) => {
      const { nodeID = "", [parameter]: id = "" } = params;
      await deps.config.setSection(nodeID, section, caller.name, (node) => {
        const stored = openSection(node, section);
        const { [id]: _removed, ...items } = v2Items(stored);
        if (!Object.hasOwn(v2Items(stored), id)) return { body: node.config[section] };
        return { body: { ...stored, version: 2, items } };
      });
      return Response.json({});
    },
  });
}

function upgrade(deps: ItemRouteDeps, { section, noun }: Itemised): Route {
  return route({
    method: "POST",
    path: `/v2/node/{nodeID}/config/${section}/upgrade`,
    operationId: `upgradeNode${noun}s`,
    summary: `Convert the ${section} section of a node to V2 form; cannot be undone`,
    tag: "Node configuration",
    access: accessTo(section),
    params: NodeParams,
    answers: {
      200: { description: "The section; every item has a new id", schema: sectionForm(section), headers: warned },
      ...refusals,
      ...notFound,
    },
    handle: async ({ params: { nodeID }, caller }) => {
      const mayConnect = await destinationsOf(caller, section);
      const changed = await deps.config.setSection(nodeID, section, caller.name, async (node, tx) => {
        const stored = node.config[section] ?? {};
        if (isV2(stored)) throw new Violations([`${section}.version: the section is already in V2 form`]);
        const body = upgradeToV2(section, stored, randomUUID);
        await requireDestinations(tx.nodes, mayConnect, node, body);
        return { body };
      });
      return warnOf(Response.json(changed.config[section]), section, changed);
    },
  });
}

const itemPath = ({ section, parameter }: Itemised): string => `/v2/node/{nodeID}/config/${section}/{${parameter}}`;

const itemParams = ({ parameter }: Itemised) => NodeParams.extend({ [parameter]: z.string().max(MAX_ID_LENGTH) });

/** Returns the stored section, or a new one in V2 form. @throws {InputError} `legacy-form` */
function openSection({ uid, config }: StoredNode, section: ItemSection): JsonObject {
  const stored = config[section];
  if (stored === undefined) return { enabled: true, version: 2, items: {} };
  if (isV2(stored)) return stored;
  const call = `POST /v2/node/${uid}/config/${section}/upgrade`;
  const details = { field: `${section}.version` };
  throw new InputError("legacy-form", `${section} of this node are in legacy form; call ${call} first`, { details });
}

/** @throws {InputError} `not-found` */
function itemOf(stored: JsonObject, id: string, noun: string): JsonObject {
  const items = v2Items(stored);
  if (!Object.hasOwn(items, id)) throw new InputError("not-found", `there is no ${noun.toLowerCase()} ${id}`);
  return isObject(items[id]) ? items[id] : {};
}

/**
 * Stores the item that `decide` makes of the stored section, and answers it as stored, with a warning if it is not applied.
 * @throws {Violations} for a conflict with another item, which the line names
 */
async function putItem(
  { config }: ItemRouteDeps,
  nodeID: string,
  id: string,
  { section, noun, judge }: Itemised,
  caller: Caller,
  decide: (stored: JsonObject) => JsonObject,
): Promise<Response> {
  const mayConnect = await destinationsOf(caller, section);
  const changed = await config.setSection(nodeID, section, caller.name, async (node, tx) => {
    const before = openSection(node, section);
    const item = decide(before);
    const others = v2Items(before);
    checkTargets(section, { version: 2, items: { [id]: item } }, node, ({ path }) =>
      path.slice(`${section}.items.${id}.`.length),
    );
    // Checked as the last item, so that it is reported as the colliding one.
    const asLast = { ...before, version: 2, items: { ...others, [id]: { ...item, index: Number.MAX_SAFE_INTEGER } } };
    const issue = judge(asLast, node).find((found) => found.id === id && found.other !== undefined);
    if (issue !== undefined) throw new Violations([issue.message.slice(`${section}.items.${id}.`.length)]);
    const body = { ...before, version: 2, items: { ...others, [id]: item } };
    await requireDestinations(tx.nodes, mayConnect, node, body);
    return { body };
  });
  const item = itemOf(changed.config[section] ?? {}, id, noun);
  return warnOf(Response.json(item), section, changed, (issue) => issue.id === id || issue.id === "");
}

/** Returns an index after all others. */
function nextIndex(items: JsonObject): number {
  const all = Object.values(items);
  const taken = all.map((item) => (isObject(item) && typeof item["index"] === "number" ? item["index"] : 0));
  return Math.min(Math.max(-1, all.length - 1, ...taken) + 1, MAX_INDEX);
}
