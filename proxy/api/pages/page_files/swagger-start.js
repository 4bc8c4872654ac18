// A file of its own, because the page's Content-Security-Policy allows no inline scripts.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null, // else it would send the document to swagger.io
});
