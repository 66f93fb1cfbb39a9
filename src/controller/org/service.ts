import { z } from "zod";
import type { EventLog, EventParts } from "../events/service.ts";
import type { MetaStore } from "../store/meta.ts";
import type { Transact } from "../store/transact.ts";
import { JsonObject } from "../../protocol/values/values.ts";

const Text = z.string().max(256);
const Contact = z.strictObject({ name: Text.nullish(), phone: Text.nullish(), email: Text.nullish() });

/** Settings of the organization. Reads and writes have the same form; unset fields are absent or null. */
export const Profile = z
  .object({
    name: Text.optional(),
    technicalContact: Contact.nullish(),
    billingContact: Contact.nullish(),
    businessContact: Contact.nullish(),
    emergencyDestination: Text.nullish().meta({ description: "E-mail address" }),
    supportable: z.boolean().nullish().meta({ description: "Whether support staff may look in" }),
  })
  .meta({ id: "OrganizationProfile" });
export type Profile = z.infer<typeof Profile>;

/** Settings of the sign-in to the portal. */
export const PortalAuth = z
  .object({
    idp_provider: z
      .string()
      .regex(
        /^[A-Za-z0-9-]{1,64}$/,
        "must be a word for the built-in accounts, such as local, or the UUID of an identity provider",
      )
      .meta({ description: "A word for the built-in accounts, or the UUID of an identity provider" }),
    subdomain: z
      .string()
      .max(253)
      .regex(/^[A-Za-z0-9.-]*$/, "must be a host name")
      .meta({ description: "Full host name on which users open the portal" }),
  })
  .meta({ id: "PortalAuth" });
export type PortalAuth = z.infer<typeof PortalAuth>;

const Sections = z.object({ alert: JsonObject.optional(), apigw: JsonObject.optional() });
/** Sections of the domain. */
export type DomainConfig = z.infer<typeof Sections>;

/** Stores of an open transaction that changes the organization. */
export interface OrganizationParts extends EventParts {
  readonly meta: Pick<MetaStore, "get" | "set">;
}

export interface OrganizationDeps {
  readonly store: Transact<OrganizationParts> & { readonly meta: Pick<MetaStore, "get"> };
  readonly events: Pick<EventLog, "change">;
  readonly domain: string;
}

/** The organization's own settings and those of its domain. Changes are recorded. */
export class Organization {
  readonly #deps: OrganizationDeps;

  constructor(deps: OrganizationDeps) {
    this.#deps = deps;
  }

  async profile(): Promise<Profile> {
    return (await read(this.#deps.store, "org-profile", Profile)) ?? {};
  }

  setProfile(profile: Profile, user: string): Promise<void> {
    return this.#set("org-profile", profile, user, "Organization changed");
  }

  /** Returns the built-in accounts on the domain itself unless something else was set. */
  async auth(): Promise<PortalAuth> {
    const { store, domain } = this.#deps;
    return (await read(store, "org-auth", PortalAuth)) ?? { idp_provider: "holdfast", subdomain: domain };
  }

  setAuth(auth: PortalAuth, user: string): Promise<void> {
    return this.#set("org-auth", auth, user, `Portal authentication by ${auth.idp_provider} on ${auth.subdomain}`);
  }

  async config(): Promise<DomainConfig> {
    return (await read(this.#deps.store, "domain-config", Sections)) ?? {};
  }

  /** Replaces a section of the domain. */
  async setSection(section: keyof DomainConfig, body: JsonObject, user: string): Promise<void> {
    const { store, events, domain } = this.#deps;
    await store.transact(async (tx) => {
      const config = { ...(await read(tx, "domain-config", Sections)), [section]: body };
      await tx.meta.set("domain-config", JSON.stringify(config));
      const item = { action: "change", type: "domain", id: domain } as const;
      await events.change(tx, undefined, user, `Configuration of ${section} of domain ${domain} changed`, item);
    });
  }

  #set(key: "org-profile" | "org-auth", value: object, user: string, message: string): Promise<void> {
    const { store, events } = this.#deps;
    return store.transact(async (tx) => {
      await tx.meta.set(key, JSON.stringify(value));
      await events.change(tx, undefined, user, message);
    });
  }
}

async function read<T>(
  { meta }: { readonly meta: Pick<MetaStore, "get"> },
  key: Parameters<MetaStore["get"]>[0],
  schema: z.ZodType<T>,
): Promise<T | undefined> {
  const text = await meta.get(key);
  return text === undefined ? undefined : schema.parse(JSON.parse(text));
}
