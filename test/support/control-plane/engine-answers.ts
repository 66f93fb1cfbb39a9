import { sql } from "kysely";
import type { StoreDatabase } from "../../../src/controller/store/database.ts";
import { statement } from "../../../src/controller/store/statement.ts";

type Tables = {
  readonly meta: { readonly key: string; readonly value: string };
};

const VALUES: Readonly<Record<string, string>> = {
  B: '{"kind":"Ärger 100%", "a.b":"dotted"}',
  a: '{"kind":"ärger 100_"}',
  c: String.raw`{"nul":"\u0000"}`,
};

const put = statement<{ key: string; value: string }>()((db, value) =>
  db
    .$extendTables<Tables>()
    .insertInto("meta")
    .values({ key: value("key"), value: value("value") }),
);

/** What every engine answers to `engineAnswers`. */
export const EXPECTED: unknown = {
  order: ["B", "a", "c"],
  kinds: ["Ärger 100%", "ärger 100_", null],
  dotted: ["dotted", null, null],
  members: ['"dotted"', null, null],
  contains: { "100%": ["B"], "100_": ["a"], RGER: ["B", "a"], "\\u0": ["c"], Ä: ["B"] },
  listed: [["B", "c"], []],
};

/** Asks an empty store what the two engines express differently. */
export async function engineAnswers({ db, engine, transactions }: StoreDatabase): Promise<unknown> {
  await transactions.run(async (tx) => {
    for (const [key, value] of Object.entries(VALUES)) await put(tx, { key, value });
  });
  const meta = db.$extendTables<Tables>().selectFrom("meta").orderBy("key");
  const column = sql.ref("value");
  const fields = async (key: string): Promise<unknown> => {
    const rows = await meta.select(engine.jsonField(column, key).as("field")).where("key", "!=", key).execute();
    return rows.map(({ field }) => field);
  };
  const keys = async (rows: Promise<readonly { readonly key: string }[]>): Promise<unknown> =>
    (await rows).map(({ key }) => key);
  const contains: Record<string, unknown> = {};
  for (const text of ["100%", "100_", "RGER", "\\u0", "Ä"]) {
    contains[text] = await keys(meta.select("key").where(engine.contains(column, text)).execute());
  }
  const listed = (list: readonly string[]) =>
    keys(
      meta
        .select("key")
        .where(engine.isAnyOf(sql.ref("key"), list))
        .execute(),
    );
  return {
    order: await keys(meta.select("key").execute()),
    kinds: await fields("kind"),
    dotted: await fields("a.b"),
    members: (await meta.select(engine.jsonMember(column, "a.b").as("member")).execute()).map(({ member }) => member),
    contains,
    listed: [await listed(["c", "B", 'x"{,']), await listed([])],
  };
}
