// Drives the unmodified @azure/data-tables against a server, and says "ok" at the end.
//
//     node drive.mjs URL ACCOUNT KEY [HOST]
//
// With HOST the account is named by the host: requests go to the same address and say that they are for HOST.

import assert from "node:assert/strict";
import {
  AzureNamedKeyCredential,
  AzureSASCredential,
  TableClient,
  TableServiceClient,
  TableTransaction,
  generateTableSas,
  odata,
} from "@azure/data-tables";

const [url, account, key, host] = process.argv.slice(2);
const credential = new AzureNamedKeyCredential(account, key);
const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };
const service = new TableServiceClient(url, credential, options);
const table = new TableClient(url, "People", credential, options);
for (const client of [service, table]) {
  if (host) {
    client.pipeline.addPolicy({
      name: "host",
      sendRequest: (request, next) => {
        request.headers.set("host", host);
        return next(request);
      },
    });
  }
}

const refused = async (promise, status, code) => {
  const error = await promise.then(
    () => assert.fail("it was not refused"),
    (error) => error,
  );
  assert.equal(error.statusCode, status);
  assert.equal(error.details?.odataError?.code ?? error.code, code);
};
const all = async (pages) => {
  const found = [];
  for await (const item of pages) found.push(item);
  return found;
};

// Tables.
await service.createTable("People");
await service.createTable("People"); // swallowed by the client
await service.createTable("Other");
assert.deepEqual((await all(service.listTables())).map((item) => item.name), ["Other", "People"]);
assert.deepEqual((await all(service.listTables({ queryOptions: { filter: odata`TableName ge ${"P"}` } }))).length, 1);

// Every type.
const entity = {
  partitionKey: "O'Neil é",
  rowKey: "a b+c,d",
  text: "x",
  flag: true,
  small: 7,
  real: 1.5,
  big: 1099511627776n,
  when: new Date("2024-02-29T12:34:56.789Z"),
  id: { type: "Guid", value: "c9da6455-213d-42c9-9a79-3e9149a57833" },
  data: new Uint8Array([0, 255]),
  whole: { type: "Double", value: "3" },
};
const made = await table.createEntity(entity);
assert.ok(made.etag && made.preferenceApplied === "return-no-content");
const found = await table.getEntity(entity.partitionKey, entity.rowKey);
assert.equal(found.etag, made.etag);
for (const name of ["text", "flag", "small", "real", "big"]) assert.equal(found[name], entity[name], name);
assert.equal(new Date(found.when).getTime(), entity.when.getTime());
assert.deepEqual([...found.data], [0, 255]);
assert.deepEqual(found.id, entity.id);
assert.equal(found.whole, 3);
await refused(table.createEntity(entity), 409, "EntityAlreadyExists");
const select = { queryOptions: { select: ["small", "none"] } };
const some = await table.getEntity(entity.partitionKey, entity.rowKey, select);
assert.deepEqual([some.small, some.none], [7, null]);

// Writes, and their conditions.
const keys = { partitionKey: entity.partitionKey, rowKey: entity.rowKey };
const merged = await table.updateEntity({ ...keys, small: 8 }, "Merge", { etag: made.etag });
await refused(table.updateEntity({ ...keys, small: 9 }, "Merge", { etag: made.etag }), 412, "UpdateConditionNotSatisfied");
await table.updateEntity({ ...keys, small: 10 }, "Replace", { etag: merged.etag });
assert.equal((await table.getEntity(keys.partitionKey, keys.rowKey)).text, undefined);
await table.upsertEntity({ ...keys, more: "y" }, "Merge");
await table.upsertEntity(keys, "Replace");
await table.deleteEntity(keys.partitionKey, keys.rowKey);
await refused(table.getEntity(keys.partitionKey, keys.rowKey), 404, "ResourceNotFound");
await refused(table.deleteEntity("none", "none"), 404, "ResourceNotFound");

// Transactions.
const transaction = new TableTransaction();
for (let n = 0; n < 7; n++) transaction.createEntity({ partitionKey: "p", rowKey: `${n}`, n });
const done = await table.submitTransaction(transaction.actions);
assert.equal(done.status, 202);
assert.equal(done.subResponses.length, 7);
assert.ok(done.getResponseForEntity("3").etag);
await table.submitTransaction([
  ["update", { partitionKey: "p", rowKey: "0", more: 1 }, "Merge"],
  ["upsert", { partitionKey: "p", rowKey: "1", n: 1 }, "Replace"],
  ["delete", { partitionKey: "p", rowKey: "6" }],
]);
await refused(
  table.submitTransaction([
    ["create", { partitionKey: "p", rowKey: "new" }],
    ["create", { partitionKey: "p", rowKey: "1" }],
  ]),
  409,
  "EntityAlreadyExists",
);
await refused(table.getEntity("p", "new"), 404, "ResourceNotFound");

// Queries and pages.
const filter = odata`PartitionKey eq ${"p"} and n ge ${2}`;
assert.deepEqual((await all(table.listEntities({ queryOptions: { filter } }))).map((row) => row.n), [2, 3, 4, 5]);
const pages = table.listEntities().byPage({ maxPageSize: 4 });
const first = (await pages.next()).value;
assert.equal(first.length, 4);
const rest = table.listEntities().byPage({ maxPageSize: 4, continuationToken: first.continuationToken });
assert.deepEqual((await rest.next()).value.map((row) => row.rowKey), ["4", "5"]);
await refused(all(table.listEntities({ queryOptions: { filter: "startswith(RowKey,'a')" } })), 501, "NotImplemented");

// Policies, properties, statistics.
await table.setAccessPolicy([{ id: "reader", accessPolicy: { permission: "r", expiry: new Date("2035-01-01") } }, { id: "bare" }]);
const policies = await table.getAccessPolicy();
assert.deepEqual(policies.map((policy) => [policy.id, policy.accessPolicy?.permission]), [["reader", "r"], ["bare", undefined]]);
await service.setProperties({
  cors: [{ allowedOrigins: "*", allowedMethods: "GET", allowedHeaders: "", exposedHeaders: "", maxAgeInSeconds: 5 }],
});
const properties = await service.getProperties();
assert.equal(properties.cors[0].maxAgeInSeconds, 5);
assert.equal(properties.logging.version, "1.0");

// A token that the client makes.
if (!host) {
  const sas = generateTableSas("People", credential, { permissions: { query: true }, expiresOn: new Date(Date.now() + 3e5) });
  const scoped = new TableClient(url, "People", new AzureSASCredential(sas), options);
  assert.equal((await all(scoped.listEntities())).length, 6);
  await refused(scoped.createEntity({ partitionKey: "p", rowKey: "z" }), 403, "AuthorizationPermissionMismatch");
}

await service.deleteTable("Other");
await table.deleteTable();
console.log("ok");
