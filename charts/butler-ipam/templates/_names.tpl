{{- /* Name of the release's objects, with room for what follows it in some of them: -webhook-tls. */ -}}
{{- define "butler-ipam.fullname" -}}
{{- $release := .Release.Name -}}
{{- if not (contains .Chart.Name $release) -}}{{- $release = printf "%s-%s" $release .Chart.Name -}}{{- end -}}
{{- .Values.fullnameOverride | default $release | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "butler-ipam.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
{{- end -}}

{{- define "butler-ipam.podLabels" -}}
{{- $own := dict "app.kubernetes.io/name" .Chart.Name "app.kubernetes.io/instance" .Release.Name -}}
{{- toYaml (merge $own .Values.podLabels .Values.commonLabels) -}}
{{- end -}}

{{- define "butler-ipam.labels" -}}
{{- $own := dict "app.kubernetes.io/name" .Chart.Name "app.kubernetes.io/instance" .Release.Name
    "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/version" .Chart.AppVersion
    "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{- toYaml (merge $own .Values.commonLabels) -}}
{{- end -}}

{{- /* The metadata of an object in the release's namespace: list $ SUFFIX-OF-THE-NAME MORE-LABELS MORE-ANNOTATIONS, the last two or one may be left out. */ -}}
{{- define "butler-ipam.metadata" -}}
namespace: {{ (index . 0).Release.Namespace }}
{{ include "butler-ipam.clusterMetadata" . }}
{{- end -}}

{{- /* The same for an object that is in no namespace. */ -}}
{{- define "butler-ipam.clusterMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "butler-ipam.fullname" $root }}{{ index . 1 }}
labels:
  {{- toYaml (merge (dict) (slice . 2 | first | default dict) (include "butler-ipam.labels" $root | fromYaml)) | nindent 2 }}
{{- with $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The APIs that are switched on, as --apis takes them. */ -}}
{{- define "butler-ipam.apis" -}}
{{- $on := list -}}
{{- range $name, $is := .Values.apis }}{{ if $is }}{{ $on = append $on (lower $name) }}{{ end }}{{ end -}}
{{- $on | sortAlpha | join "," | required "apis: switch at least one of them on" -}}
{{- end -}}

{{- /* The webhook configurations, by what their names add to those of the first: one for each API and one for tenants, since by server-side apply no
webhook can be taken out of one in which somebody else keeps its caBundle. */ -}}
{{- define "butler-ipam.webhookParts" -}}
{{- $on := list -}}
{{- range $name, $is := .Values.apis }}{{ if $is }}{{ $on = append $on (eq $name "butler" | ternary "" (printf "-%s" (lower $name))) }}{{ end }}{{ end -}}
{{- with .Values.tenants }}{{ if .enabled }}{{ $on = append $on "-tenants" }}{{ end }}{{ end -}}
{{- $on | sortAlpha | toJson -}}
{{- end -}}

{{- /* Their names, of those whose first has the given one: include "butler-ipam.webhookConfigurations" (list . "zz-butler-ipam"). */ -}}
{{- define "butler-ipam.webhookConfigurations" -}}
{{- $names := list -}}
{{- $first := last . -}}
{{- range include "butler-ipam.webhookParts" (first .) | fromJsonArray }}{{ $names = append $names (printf "%s%s" $first .) }}{{ end -}}
{{- $names | join "," -}}
{{- end -}}

{{- define "butler-ipam.image" -}}
{{- with .Values.image -}}
{{- if regexMatch "[:@][^/]*$" .repository -}}
  {{- fail (printf "image.repository %q has a tag or a digest: set them as image.tag or image.digest" .repository) -}}
{{- end -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* The Secret with the certificate that the webhooks serve with. Each mode has its own, so that a release can go from one to another. */ -}}
{{- define "butler-ipam.certificate" -}}
{{- with .Values.certificates -}}
{{- if eq .mode "secret" -}}
  {{- .existingSecret -}}
{{- else -}}
  {{- include "butler-ipam.fullname" $ }}-{{ eq .mode "self-managed" | ternary "certificates" "webhook-tls" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The name by which the API server calls the webhooks. */ -}}
{{- define "butler-ipam.host" -}}
{{ include "butler-ipam.fullname" . }}-webhook.{{ .Release.Namespace }}.svc
{{- end -}}

{{- /* The issuer of the certificates of the release, with certificates.mode=cert-manager. */ -}}
{{- define "butler-ipam.issuer" -}}
{{- $issuer := .Values.certificates.issuerRef -}}
{{- if not $issuer.name -}}
{{- $issuer = dict "group" "cert-manager.io" "kind" "Issuer" "name" (printf "%s-ca" (include "butler-ipam.fullname" .)) -}}
{{- end -}}
{{- toYaml $issuer -}}
{{- end -}}

{{- /* The labels by which the console's objects differ from the manager's, so that no selector of the manager selects them. */ -}}
{{- define "butler-ipam.consoleSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-console
{{- end -}}

{{- /* The Secret with the certificate of the console. */ -}}
{{- define "butler-ipam.consoleCertificate" -}}
{{- (.Values.console).tlsSecret | default (printf "%s-console-tls" (include "butler-ipam.fullname" .)) -}}
{{- end -}}
