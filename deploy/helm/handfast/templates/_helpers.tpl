{{/* The name of everything: the release's, with the chart's unless it is part of it. */}}
{{- define "handfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "handfast.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "handfast.labels" -}}
{{ include "handfast.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: coordinator
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "handfast.headless" -}}
{{ include "handfast.fullname" . }}-headless
{{- end -}}

{{/* The domain under which each pod has a name. */}}
{{- define "handfast.podDomain" -}}
{{ include "handfast.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "handfast.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "handfast.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "handfast.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The secret with the certificate; empty without TLS. */}}
{{- define "handfast.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{ .Values.tls.existingSecret }}
{{- else if .Values.tls.certificate -}}
{{ include "handfast.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* The secret with the tokens' hashes; empty without tokens. */}}
{{- define "handfast.tokensSecret" -}}
{{- if .Values.tokens.existingSecret -}}
{{ .Values.tokens.existingSecret }}
{{- else if .Values.tokens.lines -}}
{{ include "handfast.fullname" . }}-tokens
{{- end -}}
{{- end -}}

{{- define "handfast.isShared" -}}
{{- if or (eq .Values.store.kind "sql") (eq .Values.store.kind "etcd") -}}true{{- end -}}
{{- end -}}

{{- define "handfast.scheme" -}}
{{- if include "handfast.tlsSecret" . -}}https{{- else -}}http{{- end -}}
{{- end -}}

{{/* What the schema cannot say: refused before anything is installed. */}}
{{- define "handfast.check" -}}
{{- if not .Values.insecureAllowPlaintextAndAnonymous -}}
{{- if not (include "handfast.tlsSecret" .) -}}
{{- fail "tls.existingSecret or tls.certificate is needed, or insecureAllowPlaintextAndAnonymous: true" -}}
{{- end -}}
{{- if not (include "handfast.tokensSecret" .) -}}
{{- fail "tokens.existingSecret or tokens.lines is needed, or insecureAllowPlaintextAndAnonymous: true" -}}
{{- end -}}
{{- if .Values.seata.enabled -}}
{{- fail "seata.enabled opens a port without TLS and tokens: it needs insecureAllowPlaintextAndAnonymous: true" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tls.certificate (not .Values.tls.privateKey) -}}
{{- fail "tls.certificate needs tls.privateKey" -}}
{{- end -}}
{{- if and .Values.tls.requireClientCertificates (not (or .Values.tls.existingSecret .Values.tls.authority)) -}}
{{- fail "tls.requireClientCertificates needs tls.authority, or ca.crt in tls.existingSecret" -}}
{{- end -}}
{{- if and .Values.store.etcd.clientCertificate (not .Values.store.etcd.tlsSecret) -}}
{{- fail "store.etcd.clientCertificate needs store.etcd.tlsSecret" -}}
{{- end -}}
{{- end -}}
