// The demo's page with the button, pressed twice at once; then the page of what is promised.
require('./open.js')(async (page, address, pictures) => {
  await page.goto(address);
  await page.locator('button.pay').dblclick();
  await page.locator('#verdict', { hasText: '2 clicks, 1 charge' }).waitFor();
  const told = (await page.locator('#answers tr td:nth-child(4)').allTextContents()).sort();
  await page.screenshot({ path: `${pictures}/pay.png`, fullPage: true });
  const verdict = await page.locator('#verdict').textContent();
  const customer = await page.evaluate(() => customer);

  await page.goto(`${address}/.well-known/idempotency`);
  await page.screenshot({ path: `${pictures}/idempotency.png`, fullPage: true });
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.screenshot({ path: `${pictures}/idempotency-dark.png` });
  const operations = await page.locator('section.operation').count();
  return { told, verdict, customer, operations };
});
